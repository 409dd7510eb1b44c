/* The Bayes floor: the loss of the best predictor there is, as theory/bayes.py has it.

   Each topic t gives a polynomial whose degree stands for how many of its words are genuine (LDA), or for whether the
   topic is one of the document's (topic sets); the prior depends on the total degree alone, as a functional "end" on the
   product. Marked topics have other polynomials: one word less (the query), one more factor theta (the prediction). The
   weight 1/|M| of eq. 1 is an integral over z from 0 to 1 of z^(|M| - 1). Monte-Carlo is over documents only. */
#include "playground.h"

#define MOST_NODES 128
#define NEVER -1e300

static double base[MOST_TOPICS][LONGEST + 2], cut[MOST_TOPICS][LONGEST + 2];
static double mark[MOST_TOPICS][LONGEST + 2], both[MOST_TOPICS][LONGEST + 2];
static double after[MOST_TOPICS + 1][LONGEST + 2], product[LONGEST + 2], next[LONGEST + 2];
static int ranks, degree[MOST_TOPICS], counted[MOST_TOPICS], total_words, masks;

/* Masses of the topic of the word under the query: [MASK] queries, word queries by rank; seen topics, and any other. */
static double mask_mass[MOST_TOPICS], mask_unseen, word_mass[MOST_TOPICS][MOST_TOPICS], word_unseen[MOST_TOPICS];

static double node[MOST_NODES], node_share[MOST_NODES];
static int nodes;

static double cosine(double x) {
    double term = 1, sum = 1;
    for (int i = 2; i <= 40; i += 2) sum += (term *= -x * x / (i * (i - 1)));
    return sum;
}

/* Gauss-Legendre on (0, 1), enough of them for a document of this length. */
static void set_nodes(int length) {
    int count = (length + 1) / 2, enough = 16 + 4 * (int)square_root(length);
    if (enough < count) count = enough;
    if (count == nodes) return;
    nodes = count;
    for (int i = 0; i < count; i++) {
        double x = cosine(PI * (i + 0.75) / (count + 0.5)), slope = 1;
        for (int round = 0; round < 60; round++) {
            double p = 1, before = 0;
            for (int j = 1; j <= count; j++) {
                double now = ((2 * j - 1) * x * p - (j - 1) * before) / j;
                before = p;
                p = now;
            }
            slope = count * (x * p - before) / (x * x - 1);
            double step = p / slope;
            x -= step;
            if (step < 1e-16 && step > -1e-16) break;
        }
        node[i] = (1 + x) / 2;
        node_share[i] = 1 / ((1 - x * x) * slope * slope);
    }
}

/* The sums with rank t marked as the query (-1 for none) and each rank s as the word's topic; returns that of none. */
static double marked_sums(int t, const double *end, const double *end_unseen, int most, double *by_rank) {
    for (int k = 0; k <= most; k++) after[ranks][k] = end[k];
    for (int r = ranks - 1; r >= 0; r--) {
        const double *factor = r == t ? cut[r] : base[r];
        for (int k = 0; k <= most; k++) {
            double s = 0;
            for (int j = 0; j <= degree[r] && k + j <= most; j++) s += factor[j] * after[r + 1][k + j];
            after[r][k] = s;
        }
    }
    for (int k = 0; k <= most; k++) product[k] = k == 0;
    for (int r = 0; r < ranks; r++) {
        const double *factor = r == t ? cut[r] : base[r], *marked = r == t ? both[r] : mark[r];
        double s = 0;
        for (int k = 0; k <= most; k++) {
            if (product[k] == 0) continue;
            for (int j = 0; j <= degree[r] && k + j <= most; j++) s += product[k] * marked[j] * after[r + 1][k + j];
        }
        by_rank[r] = s;
        for (int k = 0; k <= most; k++) next[k] = 0;
        for (int k = 0; k <= most; k++)
            for (int j = 0; j <= degree[r] && k + j <= most; j++) next[k + j] += product[k] * factor[j];
        for (int k = 0; k <= most; k++) product[k] = next[k];
    }
    double unseen = 0;
    for (int k = 0; k <= most; k++) unseen += product[k] * end_unseen[k];
    return unseen;
}

static double log_power(double x, double exponent) { return exponent == 0 ? 0 : x > 0 ? exponent * logarithm(x) : NEVER; }
static double log_add(double a, double b) {
    double most = a > b ? a : b;
    return most <= NEVER ? NEVER : most + logarithm(exponential(a - most) + exponential(b - most));
}

/* LDA: expand the likelihood in the numbers of genuine words and integrate theta out. */
static void dirichlet_masses(void) {
    static double log_factorial[LONGEST + 2], log_rising[LONGEST + 2], mask_end[LONGEST + 2], word_end[LONGEST + 2];
    double a = setting[DIRICHLET], prior = a * setting[TOPICS], noise = setting[MASK] * setting[RANDOM] / setting[TOPICS];
    double genuine = 1 - (1 - setting[KEEP]) * setting[MASK];
    double log_y = logarithm((genuine > 1e-3 ? genuine : 1e-3) / (noise > 1e-9 ? noise : 1e-9)) -
                   logarithm(prior + total_words + 1);
    log_factorial[0] = log_rising[0] = 0;
    for (int k = 1; k <= total_words + 1; k++) {
        log_factorial[k] = log_factorial[k - 1] + logarithm(k);
        log_rising[k] = log_rising[k - 1] + logarithm(a + k - 1);
    }
    for (int r = 0; r < ranks; r++) {
        int n = counted[r];
        double most = NEVER;
        degree[r] = n;
        for (int k = 0; k <= n; k++) {
            base[r][k] = log_factorial[n] - log_factorial[k] - log_factorial[n - k] + log_rising[k] + k * log_y;
            if (base[r][k] > most) most = base[r][k];
        }
        for (int k = 0; k <= n; k++) {
            base[r][k] = exponential(base[r][k] - most);
            cut[r][k] = base[r][k] * (1 - (double)k / n);
            mark[r][k] = base[r][k] * (a + k);
            both[r][k] = cut[r][k] * (a + k);
        }
    }
    double most = NEVER, prior_rising = logarithm(prior);
    int length = total_words + masks;
    for (int k = 0; k <= total_words; k++) {
        double integral = NEVER;
        for (int i = 0; i < nodes && length - 1 - k >= 0; i++)
            integral = log_add(integral, logarithm(node_share[i]) + log_power(node[i], length - 1 - k) +
                                             log_power(1 - setting[MASK] + node[i] * setting[MASK] * setting[KEEP], k));
        double shared = integral <= NEVER ? NEVER : integral - prior_rising - k * log_y;
        mask_end[k] = shared + log_power(noise, total_words - k);
        word_end[k] = k < total_words ? shared + log_power(noise, total_words - 1 - k) : NEVER;
        if (mask_end[k] > most) most = mask_end[k];
        if (word_end[k] > most) most = word_end[k];
        prior_rising += logarithm(prior + k + 1);
    }
    for (int k = 0; k <= total_words; k++) {
        mask_end[k] = exponential(mask_end[k] - most);
        word_end[k] = exponential(word_end[k] - most);
    }
    mask_unseen = a * marked_sums(-1, mask_end, mask_end, total_words, mask_mass);
    for (int t = 0; t < ranks; t++) word_unseen[t] = a * marked_sums(t, word_end, word_end, total_words, word_mass[t]);
}

static double log_binomial(int n, int k) {
    if (k < 0 || k > n) return NEVER;
    double sum = 0;
    for (int i = 1; i <= k; i++) sum += logarithm((double)(n - k + i) / i);
    return sum;
}

/* tau of T topics: a topic gives (A/tau + B/T)^n if it is one of the document's, else (B/T)^n. */
static void topic_set_masses(void) {
    int tau = AS_INT(PER_DOCUMENT), unseen = AS_INT(TOPICS) - ranks;
    double end[MOST_TOPICS + 1], end_with[MOST_TOPICS + 1], log_row[MOST_NODES], most = NEVER, by_rank[MOST_TOPICS];
    double norms[MOST_NODES], most_ways = NEVER;
    for (int k = 0; k <= tau; k++)
        if (log_binomial(unseen, tau - k) > most_ways) most_ways = log_binomial(unseen, tau - k);
    for (int k = 0; k <= tau; k++) {
        end[k] = exponential(log_binomial(unseen, tau - k) - most_ways);
        end_with[k] = exponential(log_binomial(unseen - 1, tau - k - 1) - most_ways) / tau;
    }
    for (int i = 0; i < nodes; i++) {
        double noise = node[i] * setting[MASK] * setting[RANDOM] / setting[TOPICS];
        double inside = (1 - setting[MASK] + node[i] * setting[MASK] * setting[KEEP]) / tau + noise;
        norms[i] = 0;
        for (int r = 0; r < ranks; r++)
            norms[i] += log_add(log_power(noise, counted[r]), log_power(inside, counted[r]));
        log_row[i] = norms[i] + logarithm(node_share[i]) + log_power(node[i], masks);
        if (log_row[i] > most) most = log_row[i];
    }
    mask_unseen = 0;
    for (int r = 0; r < ranks; r++) {
        mask_mass[r] = word_unseen[r] = 0;
        for (int s = 0; s < ranks; s++) word_mass[r][s] = 0;
    }
    for (int i = 0; i < nodes; i++) {
        double row = exponential(log_row[i] - most), noise = node[i] * setting[MASK] * setting[RANDOM] / setting[TOPICS];
        double weights[2] = {noise, (1 - setting[MASK] + node[i] * setting[MASK] * setting[KEEP]) / tau + noise};
        if (row < 1e-30) continue;
        for (int r = 0; r < ranks; r++) {
            double norm = log_add(log_power(weights[0], counted[r]), log_power(weights[1], counted[r]));
            degree[r] = 1;
            for (int k = 0; k < 2; k++) {
                base[r][k] = exponential(log_power(weights[k], counted[r]) - norm);
                cut[r][k] = exponential(log_power(weights[k], counted[r] - 1) - norm);
                mark[r][k] = base[r][k] * k / tau;
                both[r][k] = cut[r][k] * k / tau;
            }
        }
        /* A [MASK] query is not among the other [MASK]s: one factor z less. */
        mask_unseen += row / node[i] * marked_sums(-1, end, end_with, tau, by_rank);
        for (int s = 0; s < ranks; s++) mask_mass[s] += row / node[i] * by_rank[s];
        for (int t = 0; t < ranks; t++) {
            word_unseen[t] += row * marked_sums(t, end, end_with, tau, by_rank);
            for (int s = 0; s < ranks; s++) word_mass[t][s] += row * by_rank[s];
        }
    }
}

/* What a distribution with these values, each on so many words, expects to lose: cross-entropy and squared loss. */
static void add_expected(double value, double number, double losses[2]) {
    if (value > 0) losses[0] -= number * value * logarithm(value);
    losses[1] -= number * value * value;
}

static double document_loss[2];

/* The least expected losses of one document, given the tokens that are seen. */
static void bayes_losses(const Document *document) {
    int words = AS_INT(WORDS), topics = AS_INT(TOPICS), by_topic[MOST_TOPICS] = {0};
    masks = ranks = total_words = 0;
    for (int i = 0; i < document->length; i++) {
        if (document->token[i]) by_topic[(document->token[i] - 1) / words]++;
        else masks++;
    }
    for (int t = 0; t < topics; t++)
        if (by_topic[t]) {
            counted[ranks++] = by_topic[t];
            total_words += by_topic[t];
        }
    set_nodes(document->length);
    if (AS_INT(SAMPLER) == DIRICHLET_SAMPLER) dirichlet_masses();
    else topic_set_masses();
    double unseen = topics - ranks, all = (double)topics * words, weights = 0;
    document_loss[0] = document_loss[1] = 0;
    if (masks) {
        double total = unseen * mask_unseen, losses[2] = {0, 1};
        for (int s = 0; s < ranks; s++) total += mask_mass[s];
        for (int s = 0; s < ranks; s++) add_expected(mask_mass[s] / total / words, words, losses);
        add_expected(mask_unseen / total / words, unseen * words, losses);
        weights += masks * total;
        for (int i = 0; i < 2; i++) document_loss[i] += masks * total * losses[i];
    }
    double random = setting[RANDOM] / all, keep = setting[KEEP];
    for (int t = 0; t < ranks; t++) {
        double any = unseen * word_unseen[t], own = word_mass[t][t], losses[2] = {0, 1};
        for (int s = 0; s < ranks; s++) any += word_mass[t][s];
        double total = random * words * any + keep * own, share = counted[t] * setting[MASK] * total;
        if (!(total > 0)) continue;
        for (int s = 0; s < ranks; s++)
            add_expected(word_mass[t][s] * random / total, s == t ? words - 1 : words, losses);
        add_expected(own * (keep + random) / total, 1, losses);
        add_expected(word_unseen[t] * random / total, unseen * words, losses);
        weights += share;
        for (int i = 0; i < 2; i++) document_loss[i] += share * losses[i];
    }
    for (int i = 0; i < 2; i++) document_loss[i] /= weights;
}

/* The losses of one of the documents shown: for tests. */
double *EXPORT(bayes_of_shown)(int number) {
    bayes_losses(shown_documents() + number);
    return document_loss;
}

static Random floor_documents;
static double floor_sums[5]; /* documents, then sum and sum of squares for cross-entropy and for squared loss */

void EXPORT(floor_begin)(double seed) {
    seed_random(&floor_documents, (u64)seed, 4);
    for (int i = 0; i < 5; i++) floor_sums[i] = 0;
    nodes = 0;
}

double *EXPORT(floor_add)(int count) {
    Document document;
    while (count-- > 0) {
        draw_document(&floor_documents, &document);
        bayes_losses(&document);
        floor_sums[0]++;
        for (int i = 0; i < 2; i++) {
            floor_sums[1 + 2 * i] += document_loss[i];
            floor_sums[2 + 2 * i] += document_loss[i] * document_loss[i];
        }
    }
    return floor_sums;
}
