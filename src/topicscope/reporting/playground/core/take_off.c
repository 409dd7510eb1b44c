/* When attention takes off, predicted before training: the reduced model of theory/reduced.py and theory/take_off.py.

   Documents do not change when topics, or words within topics, are renamed. So W^V and the products of W^K and W^Q are
   followed by classes: six entries, or three modes (topics, words within a topic, the plane of [MASK] and the mean
   word), thirty numbers in all, in flow time (SGD, momentum) or in steps (Adam). Expectations are over a sample of
   documents; for the squared loss the exact gradient at uniform attention (theory/dynamics.py) corrects them. The
   seed's own W^K and W^Q are carried along as the modes grow, until a word's attention is TAKEN_OFF from uniform. */
#include "playground.h"

#define MOST_SAMPLED 200     /* documents; 60 are too few at the paper's size, where [MASK] queries then run away */
#define MOST_NUMBERS 150000  /* rows times tokens: a large vocabulary makes do with fewer documents */
#define LEAST_SAMPLED 30
#define TAKEN_OFF 0.05
#define LEAST_FORGETTING 0.02
#define TOLERANCE 0.004
#define TOKENS (MOST_WORDS + 1)

/* By class, row and column: [MASK] with [MASK], [MASK] with a word, a word with [MASK], the same word, same topic,
   different topic. By modes: topics, words within a topic, the plane's four numbers. */
typedef double Six[6];
typedef double Modes[6];

static double topics, words, count;  /* T, v, Tv */
static int tokens, topic_of[TOKENS];
static Six class_size;

static void to_modes(const Six c, Modes m) {
    double root = square_root(count);
    m[0] = c[3] + (words - 1) * c[4] - words * c[5];
    m[1] = c[3] - c[4];
    m[2] = c[0];
    m[3] = root * c[1];
    m[4] = root * c[2];
    m[5] = m[0] + count * c[5];
}

static void to_classes(const Modes m, Six c) {
    double root = square_root(count);
    c[0] = m[2];
    c[1] = m[3] / root;
    c[2] = m[4] / root;
    c[5] = (m[5] - m[0]) / count;
    c[4] = c[5] + (m[0] - m[1]) / words;
    c[3] = c[4] + m[1];
}

static void multiply(const Modes a, const Modes b, Modes out) {
    Modes r = {a[0] * b[0], a[1] * b[1], a[2] * b[2] + a[3] * b[4], a[2] * b[3] + a[3] * b[5],
               a[4] * b[2] + a[5] * b[4], a[4] * b[3] + a[5] * b[5]};
    for (int i = 0; i < 6; i++) out[i] = r[i];
}

static void transpose(const Modes a, Modes out) {
    Modes r = {a[0], a[1], a[2], a[4], a[3], a[5]};
    for (int i = 0; i < 6; i++) out[i] = r[i];
}

static double trace(const Modes m) { return (topics - 1) * m[0] + (count - topics) * m[1] + m[2] + m[5]; }

/* ---- the sample: a row per document and distinct token that queries in it */

static Document drawn;
static int sampled, rows, pairs;
static int first_key[MOST_SAMPLED + 1], first_row[MOST_SAMPLED + 1], first_pair[MOST_SAMPLED * LONGEST + 1];
static short key_of[MOST_SAMPLED * LONGEST], query_of[MOST_SAMPLED * LONGEST], word_of[MOST_SAMPLED * LONGEST];
static double frequency[MOST_SAMPLED * LONGEST]; /* of each key */
static double weight_of[MOST_SAMPLED];           /* of each masked position: 1 / (documents |M|) */

static void add_document(void) {
    static int seen[TOKENS];
    int d = sampled++, keys = first_key[d];
    for (int i = 0; i < tokens; i++) seen[i] = 0;
    for (int i = 0; i < drawn.length; i++) seen[drawn.token[i]]++;
    for (int i = 0; i < tokens; i++)
        if (seen[i]) {
            key_of[keys] = (short)i;
            frequency[keys++] = (double)seen[i] / drawn.length;
        }
    first_key[d + 1] = keys;
    weight_of[d] = 1.0 / drawn.masked_count;
    for (int token = 0; token < tokens; token++) {
        int before = pairs;
        for (int i = 0; i < drawn.length; i++)
            if (drawn.masked[i] && drawn.token[i] == token) word_of[pairs++] = drawn.word[i];
        if (pairs > before) {
            query_of[rows++] = (short)token;
            first_pair[rows] = pairs;
        }
    }
    first_row[d + 1] = rows;
}

static void begin_sample(void) {
    topics = setting[TOPICS];
    words = setting[WORDS];
    count = topics * words;
    tokens = (int)count + 1;
    Six sizes = {1, count, count, count, count * (words - 1), count * (count - words)};
    for (int i = 0; i < 6; i++) class_size[i] = sizes[i] > 0 ? sizes[i] : 1;
    for (int i = 1; i < tokens; i++) topic_of[i] = (i - 1) / (int)words;
    sampled = rows = pairs = first_key[0] = first_row[0] = first_pair[0] = 0;
}

static void draw_sample(double number) {
    Random draws;
    seed_random(&draws, (u64)number, 5);
    begin_sample();
    while (sampled < MOST_SAMPLED && (sampled < LEAST_SAMPLED || rows * tokens < MOST_NUMBERS)) {
        draw_document(&draws, &drawn);
        add_document();
    }
    for (int d = 0; d < sampled; d++) weight_of[d] /= sampled;
}

typedef struct { Six value, logits, value_squares, second; double logit_squares[2][2]; } Gradient;

static int kind_of(int row, int column) {
    if (!row) return column ? 1 : 0;
    if (!column) return 2;
    return row == column ? 3 : topic_of[row] == topic_of[column] ? 4 : 5;
}

/* Adds sum r_i A_a over the entries of each class, A given on a document's keys. */
static void add_sums(const double *r, const double *r_topic, const short *key, const double *a, int keys, Six out) {
    double total = 0, mask = 0, seen = 0, own = 0, topic = 0;
    for (int t = 0; t < (int)topics; t++) total += r_topic[t];
    for (int k = 0; k < keys; k++) {
        if (!key[k]) { mask = a[k]; continue; }
        seen += a[k];
        own += r[key[k]] * a[k];
        topic += r_topic[topic_of[key[k]]] * a[k];
    }
    Six sums = {r[0] * mask, r[0] * seen, total * mask, own, topic - own, total * seen - topic};
    for (int i = 0; i < 6; i++) out[i] += sums[i];
}

static void sum_topics(const double *r, double *out) {
    int v = (int)words;
    for (int t = 0; t < (int)topics; t++) {
        out[t] = 0;
        for (int i = 1 + t * v; i <= (t + 1) * v; i++) out[t] += r[i];
    }
}

/* One entry of W' r, r's sums over topics and over all words given. */
static double back(const Six w, const double *r, const double *r_topic, double total, int key) {
    if (!key) return w[0] * r[0] + w[2] * total;
    return w[1] * r[0] + w[5] * total + (w[4] - w[5]) * r_topic[topic_of[key]] + (w[3] - w[4]) * r[key];
}

/* As Rows.gradient: the loss's derivatives on the sample; noise is how W^V scatters, by classes. */
static void sample_gradient(const Six value, const Six logits, const double *noise, int squares, Gradient *out) {
    static double attention[LONGEST], pull[LONGEST], score[TOKENS], guess[TOKENS], missing[TOKENS], residual[TOKENS];
    static double squared_keys[LONGEST], by_topic[MOST_TOPICS], wanted[TOKENS];
    int squared = AS_INT(LOSS) == SQUARED, v = (int)words, all = (int)topics;
    double largest = logits[0], strength[6];
    *out = (Gradient){0};
    for (int i = 0; i < 6; i++) if (logits[i] > largest) largest = logits[i];
    for (int i = 0; i < 6; i++) strength[i] = exponential(logits[i] - largest);
    for (int i = 0; i < tokens; i++) wanted[i] = 0;
    for (int d = 0; d < sampled; d++) {
        int keys = first_key[d + 1] - first_key[d];
        const short *key = key_of + first_key[d];
        const double *x = frequency + first_key[d];
        for (int i = 0; i < tokens; i++) residual[i] = 0;
        for (int row = first_row[d]; row < first_row[d + 1]; row++) {
            int query = query_of[row], most = first_pair[row + 1] - first_pair[row];
            const short *word = word_of + first_pair[row];
            double share = weight_of[d], weight = share * most, total = 0, mask = 0, seen_topic[MOST_TOPICS];
            for (int t = 0; t < all; t++) seen_topic[t] = 0;
            for (int k = 0; k < keys; k++) total += attention[k] = x[k] * strength[kind_of(key[k], query)];
            for (int k = 0; k < keys; k++) {
                attention[k] /= total;
                if (!key[k]) mask = attention[k];
                else seen_topic[topic_of[key[k]]] += attention[k];
            }
            score[0] = value[0] * mask + value[1] * (1 - mask);
            for (int t = 0; t < all; t++) {
                double s = value[2] * mask + value[5] * (1 - mask) + (value[4] - value[5]) * seen_topic[t];
                for (int i = 1 + t * v; i <= (t + 1) * v; i++) score[i] = s;
            }
            for (int k = 0; k < keys; k++)
                if (key[k]) score[key[k]] += (value[3] - value[4]) * attention[k];
            for (int p = 0; p < most; p++) wanted[word[p]] += share;
            double guesses = 0;
            if (squared) {
                for (int i = 0; i < tokens; i++) missing[i] = 2 * (weight * score[i] - wanted[i]);
            } else {
                double top = score[0], sum = 0;
                for (int i = 1; i < tokens; i++) if (score[i] > top) top = score[i];
                for (int i = 0; i < tokens; i++) {
                    /* Words of a topic that are not seen are all alike. */
                    guess[i] = i > 1 && score[i] == score[i - 1] ? guess[i - 1] : exponential(score[i] - top);
                    sum += guess[i];
                }
                for (int i = 0; i < tokens; i++) {
                    guess[i] /= sum;
                    guesses += guess[i] * guess[i];
                    missing[i] = weight * guess[i] - wanted[i];
                }
            }
            for (int p = 0; p < most; p++) wanted[word[p]] = 0;
            double missing_total = 0, mean = 0;
            sum_topics(missing, by_topic);
            for (int t = 0; t < all; t++) missing_total += by_topic[t];
            for (int k = 0; k < keys; k++) pull[k] = back(value, missing, by_topic, missing_total, key[k]);
            add_sums(missing, by_topic, key, attention, keys, out->value);
            if (squares) for (int i = 0; i < tokens; i++) residual[i] += missing[i];
            /* The same with the attention itself in the residual's place: E[AA'], and W^V's noise. */
            for (int i = 0; i < tokens; i++) missing[i] = 0;
            for (int k = 0; k < keys; k++) missing[key[k]] = weight * attention[k];
            for (int t = 0; t < all; t++) seen_topic[t] *= weight;
            add_sums(missing, seen_topic, key, attention, keys, out->second);
            double bend = squared ? 2 : (1 - guesses) / tokens;
            for (int k = 0; k < keys && noise; k++)
                pull[k] += bend * back(noise, missing, seen_topic, weight * (1 - mask), key[k]);
            for (int k = 0; k < keys; k++) mean += attention[k] * pull[k];
            for (int k = 0; k < keys; k++) {
                double through = attention[k] * (pull[k] - mean);
                out->logits[kind_of(key[k], query)] += through;
                if (!squares) continue;
                double square = through * through, own = attention[k] * weight;
                if (noise) square += (squared ? 4 : 1) * noise[3] / tokens * own * own;
                out->logit_squares[key[k] > 0][query > 0] += sampled * square;
            }
        }
        if (!squares) continue;
        for (int i = 0; i < tokens; i++) residual[i] *= residual[i] * sampled;
        for (int k = 0; k < keys; k++) squared_keys[k] = x[k] * x[k];
        sum_topics(residual, by_topic);
        add_sums(residual, by_topic, key, squared_keys, keys, out->value_squares);
    }
    for (int i = 0; i < 6; i++) {
        out->value[i] /= class_size[i];
        out->logits[i] /= class_size[i];
        out->second[i] /= class_size[i];
        out->value_squares[i] /= class_size[i];
    }
}

/* ---- the exact gradient by the logits at uniform attention, squared loss: theory/dynamics.py */

/* A token of a pattern: [MASK], or 16 topic + number within it. NONE: any word. */
enum { MASKED = -1, NONE = -2 };
static double shares[4][4][4]; /* by keys, positions other than the query's, masked ones of them */

/* E[(m-1)_i (N-m)_(k-i)] / N^keys with falling powers, m masked positions of N. */
static void fill_shares(void) {
    static double log_factorial[LONGEST + 1];
    double lengths = setting[LONGEST_DOCUMENT] - setting[SHORTEST] + 1;
    double log_mask = logarithm(setting[MASK]), log_seen = logarithm(1 - setting[MASK]);
    for (int i = 0; i < 64; i++) shares[i / 16][i / 4 % 4][i % 4] = 0;
    log_factorial[0] = 0;
    for (int i = 1; i <= LONGEST; i++) log_factorial[i] = log_factorial[i - 1] + logarithm(i);
    for (int n = AS_INT(SHORTEST); n <= AS_INT(LONGEST_DOCUMENT); n++) {
        double total = 0, expected[4][4] = {{0}};
        for (int m = 1; m <= n; m++) {
            double weight = exponential(log_factorial[n] - log_factorial[m] - log_factorial[n - m] + m * log_mask +
                                        (n - m) * log_seen);
            total += weight;
            for (int k = 0; k < 4; k++)
                for (int i = 0; i <= k; i++) {
                    double ways = weight;
                    for (int s = 0; s < i; s++) ways *= m - 1 - s > 0 ? m - 1 - s : 0;
                    for (int s = 0; s < k - i; s++) ways *= n - m - s > 0 ? n - m - s : 0;
                    expected[k][i] += ways;
                }
        }
        double power = 1;
        for (int keys = 1; keys < 4; keys++) {
            power *= n;
            for (int k = 0; k <= keys; k++)
                for (int i = 0; i <= k; i++) shares[keys][k][i] += expected[k][i] / total / power / lengths;
        }
    }
}

/* E[prod p_word] = E[prod theta_topic] / v^number. */
static double expected_product(const int *word, int number) {
    double result = 1, a = setting[DIRICHLET], tau = setting[PER_DOCUMENT];
    int distinct = 0;
    for (int i = 0; i < number; i++) {
        int before = 0;
        for (int j = 0; j < i; j++) before += word[j] / 16 == word[i] / 16;
        if (AS_INT(SAMPLER) == DIRICHLET_SAMPLER) result *= (a + before) / (topics * a + i);
        else {
            if (!before) {
                result *= (tau - distinct) / (topics - distinct);
                distinct++;
            }
            result /= tau;
        }
        if (result <= 0) return 0;
        result /= words;
    }
    return result;
}

/* How likely a masked position shows this token whatever its word was. */
static double hidden(int token) {
    return token == MASKED ? 1 - setting[KEEP] - setting[RANDOM] : setting[RANDOM] / count;
}

/* Each position in turn: seen, masked and kept, or masked and shown without regard to its word. */
static double expand(const int *token, int left, int *word, int number, const double *share, int masks) {
    if (!left) return share[masks] > 0 ? share[masks] * expected_product(word, number) : 0;
    double total = hidden(*token) * expand(token + 1, left - 1, word, number, share, masks + 1);
    if (*token == MASKED) return total;
    word[number] = *token;
    total += expand(token + 1, left - 1, word, number + 1, share, masks);
    word[number] = *token;
    return total + setting[KEEP] * expand(token + 1, left - 1, word, number + 1, share, masks + 1);
}

/* E[1{query, target} prod x_key]: over all ways in which the keys fall on positions, the query's own among them. */
static double moment(int query, int target, const int *key, int keys) {
    /* Blocks of keys that share a position, by the number of the block of each key. */
    static const int partition[3][5][3] = {{{0}}, {{0, 1}, {0, 0}}, {{0, 1, 2}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1}, {0, 0, 0}}};
    static const int ways[3] = {1, 2, 5};
    double sum = 0;
    for (int p = 0; p < ways[keys - 1]; p++) {
        int token[3] = {NONE, NONE, NONE}, blocks = 0, possible = 1;
        for (int k = 0; k < keys; k++) {
            int block = partition[keys - 1][p][k];
            if (token[block] == NONE) { token[block] = key[k]; blocks++; }
            else if (token[block] != key[k]) possible = 0;
        }
        for (int own = -1; own < blocks && possible; own++) {
            if (own >= 0 && token[own] != query) continue;
            int elsewhere[3], left = 0, word[5];
            for (int b = 0; b < blocks; b++) if (b != own) elsewhere[left++] = token[b];
            word[0] = target;
            sum += hidden(query) * expand(elsewhere, left, word, target != NONE, shares[keys][left], 0);
            if (query == MASKED || (target != NONE && target != query)) continue;
            word[0] = query;
            sum += setting[KEEP] * expand(elsewhere, left, word, 1, shares[keys][left], 0);
        }
    }
    return sum;
}

/* Every kind of token beside those known, with how many there are: themselves, and a new one of each kind. */
static int others(const int *known, int number, int *token, double *ways) {
    int distinct[4], words_known = 0, kinds = 0, most_topic = -1, topics_known = 0;
    for (int i = 0; i < number; i++) {
        int old = known[i] == MASKED;
        for (int j = 0; j < words_known; j++) old |= distinct[j] == known[i];
        if (!old) distinct[words_known++] = known[i];
    }
    token[kinds] = MASKED;
    ways[kinds++] = 1;
    for (int i = 0; i < words_known; i++) {
        token[kinds] = distinct[i];
        ways[kinds++] = 1;
    }
    for (int i = 0; i < words_known; i++) {
        int topic = distinct[i] / 16, used = 0, most = 0, old = 0;
        for (int j = 0; j < words_known; j++) {
            if (distinct[j] / 16 != topic) continue;
            old |= j < i;
            used++;
            if (distinct[j] % 16 > most) most = distinct[j] % 16;
        }
        if (old) continue;
        topics_known++;
        if (topic > most_topic) most_topic = topic;
        if (words > used) {
            token[kinds] = 16 * topic + most + 1;
            ways[kinds++] = words - used;
        }
    }
    if (topics > topics_known) {
        token[kinds] = 16 * (most_topic + 1);
        ways[kinds++] = (topics - topics_known) * words;
    }
    return kinds;
}

static int pattern_class(int row, int column) {
    if (row == MASKED || column == MASKED) return row != MASKED ? 2 : column != MASKED;
    return row == column ? 3 : row / 16 == column / 16 ? 4 : 5;
}

static double of_value[6][6], of_gram[6][6];

static void exact_logit_gradient(void) {
    static const int queries[6] = {MASKED, 0, MASKED, 0, 0, 0}, keys[6] = {MASKED, MASKED, 0, 0, 1, 16};
    fill_shares();
    for (int row = 0; row < 6; row++) {
        for (int i = 0; i < 6; i++) of_value[row][i] = of_gram[row][i] = 0;
        if (row == 4 && words < 2) continue;
        int query = queries[row], key = keys[row], known[3] = {query, key, 0}, other[10], third[10];
        double ways[10], more[10];
        int kinds = others(known, 2, other, ways);
        for (int o = 0; o < kinds; o++) {
            int pair[3] = {key, other[o], 0};
            of_gram[row][pattern_class(key, other[o])] += 2 * ways[o] * moment(query, NONE, pair, 2);
            known[2] = other[o];
            int thirds = others(known, 3, third, more);
            for (int t = 0; t < thirds; t++) {
                pair[2] = third[t];
                double weight = 2 * ways[o] * more[t];
                of_gram[row][pattern_class(other[o], third[t])] -= weight * moment(query, NONE, pair, 3);
                if (third[t] != MASKED)
                    of_value[row][pattern_class(third[t], other[o])] += weight * moment(query, third[t], pair, 2);
            }
            if (other[o] != MASKED)
                of_value[row][pattern_class(other[o], key)] -= 2 * ways[o] * moment(query, other[o], &key, 1);
        }
    }
}

/* ---- by how much the sample is off at uniform attention, squared loss: take_off.py's Population */

static Six error_constant;
static double error_by_value[6][6], error_on_value[6][6], error_on_gram[6][6];
static Modes second_moment;

static void gram(const Six value, Six out) {
    Modes m, back;
    to_modes(value, m);
    transpose(m, back);
    multiply(back, m, m);
    to_classes(m, out);
}

static void measure_errors(void) {
    Moments exact = class_moments();
    Modes cross = {exact.cross_between, exact.cross_within, 0, 0, exact.cross_mask, exact.cross_mean}, m;
    Modes second = {exact.second_between, exact.second_within, exact.second_mask, exact.second_coupling,
                    exact.second_coupling, exact.second_mean};
    Six zero = {0}, c;
    Gradient nothing, scatter, whole;
    for (int i = 0; i < 6; i++) second_moment[i] = second[i];
    if (AS_INT(LOSS) != SQUARED) return;
    exact_logit_gradient();
    sample_gradient(zero, zero, 0, 0, &nothing);
    to_classes(cross, c);
    for (int i = 0; i < 6; i++) error_constant[i] = nothing.value[i] + 2 * c[i];
    double grams[6][6], raw[6][6];
    for (int place = 0; place < 6; place++) {
        Six unit = {0};
        unit[place] = 1;
        sample_gradient(zero, zero, unit, 0, &scatter);
        sample_gradient(unit, zero, 0, 0, &whole);
        to_modes(unit, m);
        multiply(m, second, m);
        to_classes(m, c);
        gram(unit, grams[place]);
        for (int i = 0; i < 6; i++) {
            error_by_value[i][place] = whole.value[i] - nothing.value[i] - 2 * c[i];
            raw[i][place] = scatter.logits[i];
            error_on_value[i][place] = whole.logits[i];
        }
    }
    for (int i = 0; i < 6; i++)
        for (int place = 0; place < 6; place++) {
            for (int k = 0; k < 6; k++) error_on_value[i][place] -= raw[i][k] * grams[place][k];
            error_on_value[i][place] -= of_value[i][place];
            error_on_gram[i][place] = raw[i][place] - of_gram[i][place];
        }
}

static void corrected_gradient(const Six value, const Six logits, const Six noise, int squares, Gradient *out) {
    sample_gradient(value, logits, noise, squares, out);
    if (AS_INT(LOSS) != SQUARED) return;
    Six product;
    gram(value, product);
    for (int i = 0; i < 6; i++) {
        out->value[i] -= error_constant[i];
        for (int k = 0; k < 6; k++) {
            out->value[i] -= error_by_value[i][k] * value[k];
            out->logits[i] -= error_on_value[i][k] * value[k] + error_on_gram[i][k] * (product[k] + noise[k]);
        }
    }
}

/* E|Wx - y|^2 at the best W, y a document's mean target: the size of the noise in W^V's gradient. */
static double residual_noise(void) {
    Moments exact = class_moments();
    ClassMatrix best = class_optimum(&exact, 0);
    double sum = 0;
    static double score[TOKENS];
    for (int d = 0; d < sampled; d++) {
        double mask = 0, by_topic[MOST_TOPICS] = {0};
        for (int k = first_key[d]; k < first_key[d + 1]; k++) {
            if (!key_of[k]) mask = frequency[k];
            else by_topic[topic_of[key_of[k]]] += frequency[k];
        }
        for (int i = 1; i < tokens; i++)
            score[i] = best.mask_column * mask + best.different_topic * (1 - mask) +
                       (best.same_topic - best.different_topic) * by_topic[topic_of[i]];
        for (int k = first_key[d]; k < first_key[d + 1]; k++)
            if (key_of[k]) score[key_of[k]] += (best.same_word - best.same_topic) * frequency[k];
        for (int p = first_pair[first_row[d]]; p < first_pair[first_row[d + 1]]; p++)
            score[word_of[p]] -= weight_of[d] * sampled;
        for (int i = 1; i < tokens; i++) sum += score[i] * score[i] / sampled;
    }
    return sum;
}

/* ---- the path: W^V by classes, W^K'W^K, W^Q'W^Q, W^K'W^Q and W^V's scatter by modes */

enum { VALUE = 0, KEYS = 6, QUERIES = 12, CROSS = 18, NOISE = 24, STATE = 30 };
static double state[STATE], least_size[STATE], jacobian[STATE][STATE], moment_now, step_length, rate, residual;
static double distance_before, moment_before;
static int jacobian_age, frozen;

/* What the optimiser makes of a gradient per unit of time (take_off.py: sgd, adam). */
typedef struct { Six value; Modes key, query, key_spread, query_spread, decay, spread; } Rates;

/* Of an entry of [MASK]'s column, and of a word's, of a matrix with these products. */
static void mean_squares(const Modes products, double out[2]) {
    double mask = products[2] > 0 ? products[2] : 0, rest = trace(products) - mask;
    out[0] = mask / tokens;
    out[1] = (rest > 0 ? rest : 0) / count / tokens;
}

static void diagonal(double mask, double word, Modes out) {
    Modes m = {word, word, mask, 0, 0, word};
    for (int i = 0; i < 6; i++) out[i] = m[i];
}

static void adam_columns(const double squares[2][2], const Modes slope, const Modes other, Modes rates, Modes spread) {
    double given[2], signal[2], rate_of[2], spread_of[2], numbers[2] = {1, count};
    Modes product, back;
    mean_squares(other, given);
    multiply(slope, other, product);
    transpose(slope, back);
    multiply(product, back, product);
    mean_squares(product, signal);
    for (int i = 0; i < 2; i++) {
        double noise = (squares[i][0] * given[0] + squares[i][1] * given[1]) / numbers[i] / tokens / setting[BATCH];
        rate_of[i] = setting[RATE] / (square_root(noise + signal[i] / tokens) + setting[EPSILON]);
        spread_of[i] = tokens * noise * rate_of[i] * rate_of[i];
    }
    diagonal(rate_of[0], rate_of[1], rates);
    diagonal(spread_of[0], spread_of[1], spread);
}

static void adam_rates(const double *y, const Gradient *g, Rates *r) {
    Modes slope, turned, second, mean;
    double turned_squares[2][2], walk[6], batch = setting[BATCH];
    to_modes(g->logits, slope);
    transpose(slope, turned);
    for (int i = 0; i < 4; i++) turned_squares[i / 2][i % 2] = g->logit_squares[i % 2][i / 2];
    adam_columns(g->logit_squares, slope, y + QUERIES, r->key, r->key_spread);
    adam_columns(turned_squares, turned, y + KEYS, r->query, r->query_spread);
    for (int i = 0; i < 6; i++) {
        double noise = g->value_squares[i] / batch;
        r->value[i] = setting[RATE] / (square_root(noise + g->value[i] * g->value[i]) + setting[EPSILON]);
        walk[i] = tokens * r->value[i] * r->value[i] * noise;
    }
    to_modes(g->second, second);
    diagonal(r->value[2], r->value[5], mean);
    multiply(mean, second, r->decay);
    for (int i = 0; i < 6; i++) r->decay[i] *= AS_INT(LOSS) == SQUARED ? 2 : 1.0 / tokens;
    diagonal(walk[2], walk[5], r->spread);
}

static double forgotten(double value) {
    double left = 1 - rate * value;
    return 2 * value * (left > LEAST_FORGETTING ? left : LEAST_FORGETTING);
}

static void sgd_rates(const Gradient *g, Rates *r) {
    for (int i = 0; i < 6; i++) {
        r->value[i] = 1;
        r->key_spread[i] = r->query_spread[i] = r->decay[i] = r->spread[i] = 0;
    }
    diagonal(1, 1, r->key);
    diagonal(1, 1, r->query);
    if (AS_INT(LOSS) != SQUARED) return;
    Modes second;
    to_modes(g->second, second);
    double values[2], vector[2];
    eigen(second[2], second[3], second[5], values, vector);
    double fast = forgotten(values[0]), slow = forgotten(values[1]), x = vector[0], y = vector[1];
    Modes decay = {forgotten(second[0]), forgotten(second[1]), fast * x * x + slow * y * y, (fast - slow) * x * y,
                   (fast - slow) * x * y, fast * y * y + slow * x * x};
    for (int i = 0; i < 6; i++) {
        r->decay[i] = decay[i];
        r->spread[i] = second[i] * 4 * residual * rate / setting[BATCH];
    }
}

/* dX/dt += a b + (a b)', for symmetric X. */
static void add_both(const Modes a, const Modes b, double factor, double *out) {
    Modes m, back;
    multiply(a, b, m);
    transpose(m, back);
    for (int i = 0; i < 6; i++) out[i] += factor * (m[i] + back[i]);
}

static void velocity(const double *y, double *out) {
    Gradient g;
    Rates r;
    Six logits, noise;
    Modes slope, by_key, by_query, turned;
    double root = square_root(tokens), ridge = 2 * setting[L2];
    for (int i = 0; i < 6; i++) slope[i] = y[CROSS + i] / root;
    to_classes(slope, logits);
    to_classes(y + NOISE, noise);
    corrected_gradient(y + VALUE, logits, noise, AS_INT(OPTIMIZER) == ADAM, &g);
    for (int i = 0; i < 6; i++) g.value[i] += ridge * y[VALUE + i];
    if (AS_INT(OPTIMIZER) == ADAM) adam_rates(y, &g, &r);
    else sgd_rates(&g, &r);
    for (int i = 0; i < STATE; i++) out[i] = 0;
    to_modes(g.logits, slope);
    for (int i = 0; i < 6; i++) slope[i] /= -root;
    multiply(r.key, slope, by_key);
    multiply(slope, r.query, by_query);
    transpose(by_key, turned);
    add_both(y + CROSS, turned, 1, out + KEYS);
    transpose(y + CROSS, turned);
    add_both(turned, by_query, 1, out + QUERIES);
    Modes one, other;
    multiply(by_key, y + QUERIES, one);
    multiply(y + KEYS, by_query, other);
    for (int i = 0; i < 6; i++) {
        out[KEYS + i] += r.key_spread[i];
        out[QUERIES + i] += r.query_spread[i];
        out[CROSS + i] += one[i] + other[i];
    }
    /* Adam's steps are larger than W^K's first entries, so that L2 does not shrink them as a flow would: left out. */
    if (ridge > 0 && AS_INT(OPTIMIZER) != ADAM) {
        add_both(r.key, y + KEYS, -ridge, out + KEYS);
        add_both(r.query, y + QUERIES, -ridge, out + QUERIES);
        multiply(r.key, y + CROSS, one);
        multiply(y + CROSS, r.query, other);
        for (int i = 0; i < 6; i++) out[CROSS + i] -= ridge * (one[i] + other[i]);
    }
    if (frozen) return;
    for (int i = 0; i < 6; i++) {
        out[VALUE + i] = -r.value[i] * g.value[i];
        out[NOISE + i] = r.spread[i];
    }
    add_both(r.decay, y + NOISE, -1, out + NOISE);
    if (ridge > 0) {
        Modes mean;
        diagonal(r.value[2], r.value[5], mean);
        add_both(mean, y + NOISE, -ridge, out + NOISE);
    }
}

/* Square root of a symmetric matrix by Jacobi's rotations; what is below zero is rounding. */
static void symmetric_root(double *a, int size) {
    double vectors[16], root[16] = {0};
    for (int i = 0; i < size * size; i++) vectors[i] = i / size == i % size;
    for (int sweep = 0; sweep < 30; sweep++)
        for (int p = 0; p < size; p++)
            for (int q = p + 1; q < size; q++) {
                double off = a[p * size + q];
                if (off == 0) continue;
                double turn = (a[q * size + q] - a[p * size + p]) / (2 * off);
                double t = (turn < 0 ? -1 : 1) / (__builtin_fabs(turn) + square_root(turn * turn + 1));
                double c = 1 / square_root(t * t + 1), s = t * c;
                for (int k = 0; k < size; k++) {
                    double x = a[k * size + p], y = a[k * size + q];
                    a[k * size + p] = c * x - s * y;
                    a[k * size + q] = s * x + c * y;
                }
                for (int k = 0; k < size; k++) {
                    double x = a[p * size + k], y = a[q * size + k];
                    a[p * size + k] = c * x - s * y;
                    a[q * size + k] = s * x + c * y;
                    x = vectors[k * size + p];
                    y = vectors[k * size + q];
                    vectors[k * size + p] = c * x - s * y;
                    vectors[k * size + q] = s * x + c * y;
                }
            }
    for (int k = 0; k < size; k++) {
        double value = a[k * size + k] > 0 ? square_root(a[k * size + k]) : 0;
        for (int i = 0; i < size * size; i++) root[i] += value * vectors[i / size * size + k] * vectors[i % size * size + k];
    }
    for (int i = 0; i < size * size; i++) a[i] = root[i];
}

/* How far words' attention is from uniform: the seed's own start, each mode as it has grown. */
static double distance(const double *y) {
    double modes[2][4], plane[16], unit = 1 / (tokens * setting[SCALE] * setting[SCALE]);
    for (int m = 0; m < 2; m++) {
        modes[m][0] = y[KEYS + m] * unit;
        modes[m][1] = modes[m][2] = y[CROSS + m] * unit;
        modes[m][3] = y[QUERIES + m] * unit;
        symmetric_root(modes[m], 2);
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            plane[i * 4 + j] = y[KEYS + 2 + 2 * i + j] * unit;
            plane[i * 4 + 2 + j] = y[CROSS + 2 + 2 * i + j] * unit;
            plane[(2 + i) * 4 + j] = y[CROSS + 2 + 2 * j + i] * unit;
            plane[(2 + i) * 4 + 2 + j] = y[QUERIES + 2 + 2 * i + j] * unit;
        }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++) plane[i * 4 + j] = plane[j * 4 + i] = (plane[i * 4 + j] + plane[j * 4 + i]) / 2;
    symmetric_root(plane, 4);
    return grown_distance(modes[0], modes[1], plane);
}

/* Begins anew with this seed: not for a core that is training. */
void EXPORT(predict_begin)(double seed, double sample_number) {
    keep_start(seed);
    draw_sample(sample_number);
    measure_errors();
    frozen = AS_INT(PARTS) == THEOREM;
    rate = AS_INT(OPTIMIZER) == ADAM ? 1 : setting[RATE] * (AS_INT(OPTIMIZER) == MOMENTUM ? 10 : 1);
    residual = residual_noise();
    double square = setting[SCALE] * setting[SCALE] * tokens;
    for (int i = 0; i < STATE; i++) {
        state[i] = 0;
        least_size[i] = i < KEYS ? 1e-3 : i < NOISE ? square : 1e-4;
    }
    for (int first = KEYS; first < STATE; first += 6)
        if (first != CROSS && !(first == NOISE && frozen)) diagonal(square, square, state + first);
    if (frozen) {
        ClassMatrix w = theorem_2();
        Six value = {0, 0, w.mask_column, w.same_word, w.same_topic, w.different_topic};
        for (int i = 0; i < 6; i++) state[VALUE + i] = value[i];
    }
    moment_now = moment_before = 0;
    step_length = rate;
    jacobian_age = -1;
    distance_before = setting[SCALE] > 0 ? distance(state) : 0;
}

static void fill_jacobian(const double *here) {
    double moved[STATE], there[STATE];
    for (int j = 0; j < STATE; j++) {
        for (int i = 0; i < STATE; i++) moved[i] = state[i];
        double nudge = 1e-6 * (__builtin_fabs(state[j]) + least_size[j]);
        moved[j] += nudge;
        velocity(moved, there);
        for (int i = 0; i < STATE; i++) jacobian[i][j] = (there[i] - here[i]) / nudge;
    }
    jacobian_age = 0;
}

static void implicit(double length, double *vector) {
    static double matrix[STATE * STATE];
    double gamma = 1 - square_root(0.5);
    for (int i = 0; i < STATE * STATE; i++)
        matrix[i] = (i / STATE == i % STATE) - gamma * length * jacobian[i / STATE][i % STATE];
    solve(matrix, vector, STATE);
}

/* One step along the path: Rosenbrock's method ROS2, which is of second order whatever the Jacobian, so that an old one
   does. The step of training at which attention takes off; 0: not yet; -1: not within so many steps. */
double EXPORT(predict_more)(double most_steps) {
    double now[STATE], one[STATE], two[STATE], there[STATE], error = 0;
    if (!(setting[SCALE] > 0)) return -1;
    if (distance_before >= TAKEN_OFF) return 1;
    if (moment_now >= rate * most_steps) return -1;
    velocity(state, now);
    if (jacobian_age < 0 || jacobian_age > 12) fill_jacobian(now);
    double most = 0.1 * moment_now + rate, h = step_length < most ? step_length : most;
    for (int i = 0; i < STATE; i++) one[i] = now[i];
    implicit(h, one);
    for (int i = 0; i < STATE; i++) there[i] = state[i] + h * one[i];
    velocity(there, two);
    for (int i = 0; i < STATE; i++) two[i] -= 2 * one[i];
    implicit(h, two);
    for (int i = 0; i < STATE; i++) {
        double off = h / 2 * (one[i] + two[i]) / (__builtin_fabs(state[i]) + least_size[i]) / TOLERANCE;
        if (!(off * off <= error)) error = off * off;
    }
    double factor = 0.8 / square_root(square_root(error));
    if (!(factor > 0.2)) factor = 0.2;
    if (factor > 3) factor = 3;
    step_length = h * factor;
    if (!(error <= 1)) {
        if (jacobian_age > 0) jacobian_age = -1;
        return step_length > 1e-12 * (moment_now + rate) ? 0 : -1;
    }
    for (int i = 0; i < STATE; i++) state[i] += h * (1.5 * one[i] + 0.5 * two[i]);
    jacobian_age++;
    moment_before = moment_now;
    moment_now += h;
    double far = distance(state);
    if (!(far < TAKEN_OFF)) {
        double share = distance_before > 0 && far < 1
                           ? logarithm(TAKEN_OFF / distance_before) / logarithm(far / distance_before) : 1;
        return (moment_before + share * h) / rate;
    }
    distance_before = far;
    return 0;
}

/* For tests: the gradient by classes on the documents shown, at W^V, logits and noise as written; the exact one's. */
static double given[18];
double *EXPORT(reduced_input)(void) { return given; }
double *EXPORT(reduced_gradient)(int documents) {
    static Gradient found;
    begin_sample();
    for (int i = 0; i < documents; i++) {
        drawn = shown_documents()[i];
        add_document();
    }
    for (int d = 0; d < sampled; d++) weight_of[d] /= sampled;
    sample_gradient(given, given + 6, given + 12, 1, &found);
    return found.value;
}

double *EXPORT(exact_logit_matrix)(int of_squares) {
    begin_sample();
    exact_logit_gradient();
    return of_squares ? of_gram[0] : of_value[0];
}
