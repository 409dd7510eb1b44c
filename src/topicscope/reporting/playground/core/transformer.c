/* Eq. 7 on bags of tokens, its gradient written out, and one step of training: what model/one_hot.py does, alone.

   Without positions a document is a bag: a query a gives to all keys b together A_b = n_b exp(s_ab) / Z, and equal
   queries have equal predictions x = W^V A. With G = dL/dx, which is w softmax(x) - t for the cross-entropy and
   2 (w x - t) for the squared loss (t the shares of the words to predict, w their sum),

       dW^V = G A',   ds = A o (H - <H, A>) with H = G' W^V,   dW^K = W^Q dS / sqrt(d),   dW^Q = W^K dS' / sqrt(d).

   Only the tokens that a document has are touched: the attention of all others is exactly zero, never a denormal. */
#include "playground.h"

typedef float f4 __attribute__((vector_size(16)));
typedef int i4 __attribute__((vector_size(16)));
typedef f4 f4_anywhere __attribute__((aligned(4)));
#define SIZE (MOST_WIDTH * MOST_WIDTH)
#define AT(pointer) (*(f4 *)(pointer))
#define MOST_ROWS (MOST_WIDTH + 4)
#define BELOW_THIS_ZERO -80.0f

/* W^V has a row per token seen (it is kept transposed), W^K and W^Q a column per token, as in the paper. */
enum { VALUE, KEY, QUERY, MATRICES };
static float weight[MATRICES][SIZE], gradient[MATRICES][SIZE], first[MATRICES][SIZE], second[MATRICES][SIZE];
static int updates[MATRICES];
static float score[SIZE], score_gradient[SIZE];
static int vocabulary, width; /* V, and V rounded up to a multiple of 8 */
static double step_number;
static Random documents, held_out_documents;
static Document shown[SHOWN], held_out[SHOWN];

/* One document's bag: its keys with their counts, its distinct queries with what they must predict. */
static int keys, rows;
static int key_token[MOST_WIDTH], row_token[MOST_ROWS];
static float key_count[MOST_WIDTH], row_weight[MOST_ROWS];
static float __attribute__((aligned(16))) attention[MOST_ROWS][MOST_WIDTH], pulled[MOST_ROWS][MOST_WIDTH];
static float __attribute__((aligned(16))) target[MOST_ROWS][MOST_WIDTH], output[MOST_ROWS][MOST_WIDTH];
static short place[MOST_WIDTH];

double *EXPORT(settings)(void) { return setting; }
float *EXPORT(weights)(int matrix) { return weight[matrix]; }
float *EXPORT(gradients)(int matrix) { return gradient[matrix]; }
int EXPORT(padded_width)(void) { return width; }
Document *EXPORT(shown_documents)(void) { return shown; }
Document *EXPORT(held_out_shown)(void) { return held_out; }
int EXPORT(document_bytes)(void) { return sizeof(Document); }
double EXPORT(steps_done)(void) { return step_number; }

static f4 splat(float x) { return (f4){x, x, x, x}; }
static float sum(f4 x) { return (x[0] + x[1]) + (x[2] + x[3]); }

/* e^x for x <= 0 to rounding (Cephes' polynomial); exactly zero far below. */
static f4 exponential_4(f4 x) {
    i4 far = x < splat(BELOW_THIS_ZERO);
    x = (f4)((i4)x & ~far);
    f4 shifted = x * splat(1.44269504088896341f) + splat(12582912.0f);
    f4 k = shifted - splat(12582912.0f);
    f4 r = x - k * splat(0.693359375f) - k * splat(-2.12194440e-4f);
    f4 p = splat(1.9875691500e-4f);
    p = p * r + splat(1.3981999507e-3f);
    p = p * r + splat(8.3334519073e-3f);
    p = p * r + splat(4.1665795894e-2f);
    p = p * r + splat(1.6666665459e-1f);
    p = p * r + splat(5.0000001201e-1f);
    p = p * r * r + r + splat(1.0f);
    i4 power = (__builtin_convertvector(k, i4) + (i4){127, 127, 127, 127}) << 23;
    return (f4)((i4)(p * (f4)power) & ~far);
}

/* out[i][j] = scale * sum_k a[k][i] b[k][j]: a is read by columns. */
static void multiply_transposed(const float *a, const float *b, float *out, float scale) {
    for (int i = 0; i < width; i += 4)
        for (int j = 0; j < width; j += 8) {
            f4 s[4][2] = {{{0}}};
            for (int k = 0; k < vocabulary; k++) {
                const float *left = a + k * width + i, *right = b + k * width + j;
                f4 r0 = AT(right), r1 = AT(right + 4);
                for (int m = 0; m < 4; m++) {
                    s[m][0] += splat(left[m]) * r0;
                    s[m][1] += splat(left[m]) * r1;
                }
            }
            for (int m = 0; m < 4; m++) {
                AT(out + (i + m) * width + j) = s[m][0] * splat(scale);
                AT(out + (i + m) * width + j + 4) = s[m][1] * splat(scale);
            }
        }
}

/* out[i][j] = scale * sum_k a[i][k] b[k][j]. */
static void multiply(const float *a, const float *b, float *out, float scale) {
    for (int i = 0; i < width; i += 4)
        for (int j = 0; j < width; j += 8) {
            f4 s[4][2] = {{{0}}};
            for (int k = 0; k < vocabulary; k++) {
                const float *left = a + i * width + k, *right = b + k * width + j;
                f4 r0 = AT(right), r1 = AT(right + 4);
                for (int m = 0; m < 4; m++) {
                    s[m][0] += splat(left[m * width]) * r0;
                    s[m][1] += splat(left[m * width]) * r1;
                }
            }
            for (int m = 0; m < 4; m++) {
                AT(out + (i + m) * width + j) = s[m][0] * splat(scale);
                AT(out + (i + m) * width + j + 4) = s[m][1] * splat(scale);
            }
        }
}

static void transpose(const float *from, float *to) {
    for (int i = 0; i < width; i++)
        for (int j = 0; j < width; j++) to[j * width + i] = from[i * width + j];
}

static void clear(float *numbers, int count) {
    for (int i = 0; i < count; i += 4) AT(numbers + i) = splat(0);
}

/* The keys of a document, and its queries: equal masked tokens are one, and under uniform attention all are. */
static void count_bag(const Document *document, int uniform, double share) {
    for (int token = 0; token < vocabulary; token++) place[token] = -1;
    keys = 0;
    for (int i = 0; i < document->length; i++) {
        if (setting[HIDDEN_KEYS] && document->masked[i]) continue;
        int token = document->token[i];
        if (place[token] < 0) {
            place[token] = (short)keys;
            key_token[keys] = token;
            key_count[keys++] = 0;
        }
        key_count[place[token]] += 1;
    }
    for (int token = 0; token < vocabulary; token++) place[token] = -1;
    rows = 0;
    float one = (float)(share / document->masked_count);
    for (int i = 0; i < document->length; i++) {
        if (!document->masked[i]) continue;
        int token = uniform ? 0 : document->token[i];
        if (place[token] < 0) {
            place[token] = (short)rows;
            row_token[rows] = token;
            clear(target[rows], width);
            row_weight[rows++] = 0;
        }
        row_weight[place[token]] += one;
        target[place[token]][document->word[i]] += one;
    }
    /* Rows go by fours: the last ones count nothing. */
    for (int row = rows; row % 4; row++) {
        row_weight[row] = 0;
        clear(target[row], width);
    }
}

/* A of each row; that of the rows added to make fours is zero. */
static void attend(int uniform) {
    int ends = (keys + 3) & ~3, all = (rows + 3) & ~3;
    float number = 0;
    for (int k = 0; k < keys; k++) number += key_count[k];
    for (int row = 0; row < all; row++) {
        float *a = attention[row];
        if (row >= rows) { clear(a, ends); continue; }
        if (uniform) {
            for (int k = 0; k < keys; k++) a[k] = key_count[k] / number;
            continue;
        }
        const float *s = score + row_token[row] * width;
        float largest = s[key_token[0]];
        for (int k = 0; k < keys; k++) {
            a[k] = s[key_token[k]];
            if (a[k] > largest) largest = a[k];
        }
        for (int k = keys; k < ends; k++) a[k] = largest;
        for (int k = 0; k < ends; k += 4) AT(a + k) = exponential_4(AT(a + k) - splat(largest));
        float total = 0;
        for (int k = 0; k < keys; k++) total += a[k] *= key_count[k];
        for (int k = 0; k < keys; k++) a[k] /= total;
    }
}

/* x = W^V A, four rows at a time. */
static void predict(void) {
    for (int row = 0; row < rows; row += 4)
        for (int j = 0; j < width; j += 8) {
            f4 s[4][2] = {{{0}}};
            for (int k = 0; k < keys; k++) {
                const float *value = weight[VALUE] + key_token[k] * width + j;
                f4 v0 = AT(value), v1 = AT(value + 4);
                for (int m = 0; m < 4; m++) {
                    f4 a = splat(attention[row + m][k]);
                    s[m][0] += a * v0;
                    s[m][1] += a * v1;
                }
            }
            for (int m = 0; m < 4; m++) {
                AT(output[row + m] + j) = s[m][0];
                AT(output[row + m] + j + 4) = s[m][1];
            }
        }
}

/* The loss of one row; its output becomes G. */
static double row_loss(int row) {
    float *x = output[row], *t = target[row], w = row_weight[row];
    double loss = 0;
    f4 dot = splat(0);
    for (int j = 0; j < width; j += 4) dot += AT(x + j) * AT(t + j);
    if (AS_INT(LOSS) == SQUARED) {
        f4 square = splat(0);
        for (int j = 0; j < width; j += 4) {
            square += AT(x + j) * AT(x + j);
            AT(x + j) = splat(2) * (splat(w) * AT(x + j) - AT(t + j));
        }
        return (double)w * (1 + (double)sum(square)) - 2 * (double)sum(dot);
    }
    float largest = x[0];
    for (int j = 1; j < vocabulary; j++)
        if (x[j] > largest) largest = x[j];
    for (int j = vocabulary; j < width; j++) x[j] = largest - 1000;
    f4 total = splat(0);
    for (int j = 0; j < width; j += 4) total += AT(x + j) = exponential_4(AT(x + j) - splat(largest));
    loss = (double)w * (largest + logarithm((double)sum(total))) - (double)sum(dot);
    f4 scale = splat(w / sum(total));
    for (int j = 0; j < width; j += 4) AT(x + j) = AT(x + j) * scale - AT(t + j);
    return loss;
}

/* dW^V += G A'. */
static void value_gradient(void) {
    for (int row = 0; row < rows; row += 4)
        for (int k = 0; k < keys; k++) {
            float *to = gradient[VALUE] + key_token[k] * width;
            f4 a0 = splat(attention[row][k]), a1 = splat(attention[row + 1][k]);
            f4 a2 = splat(attention[row + 2][k]), a3 = splat(attention[row + 3][k]);
            for (int j = 0; j < width; j += 4)
                AT(to + j) += (a0 * AT(output[row] + j) + a1 * AT(output[row + 1] + j)) +
                              (a2 * AT(output[row + 2] + j) + a3 * AT(output[row + 3] + j));
        }
}

/* dS += A o (H - <H, A>), H = G' W^V. */
static void attention_gradient(void) {
    for (int row = 0; row < rows; row += 4)
        for (int k = 0; k < keys; k++) {
            const float *value = weight[VALUE] + key_token[k] * width;
            f4 s[4] = {{0}};
            for (int j = 0; j < width; j += 4) {
                f4 v = AT(value + j);
                for (int m = 0; m < 4; m++) s[m] += AT(output[row + m] + j) * v;
            }
            for (int m = 0; m < 4; m++) pulled[row + m][k] = sum(s[m]);
        }
    for (int row = 0; row < rows; row++) {
        float mean = 0, *to = score_gradient + row_token[row] * width;
        for (int k = 0; k < keys; k++) mean += attention[row][k] * pulled[row][k];
        for (int k = 0; k < keys; k++) to[key_token[k]] += attention[row][k] * (pulled[row][k] - mean);
    }
}

static int is_trained(int matrix) {
    int parts = AS_INT(PARTS);
    if (matrix == VALUE) return parts != THEOREM;
    return parts == ALL || parts == THEOREM;
}

/* All pairs of tokens' scores, W^Q' W^K / sqrt(d). */
static void fill_scores(void) {
    multiply_transposed(weight[QUERY], weight[KEY], score, (float)(1 / square_root(vocabulary)));
}

/* The loss (eq. 1, without L2) and the gradients (with it) on a batch: fresh documents, or those given. */
static double pass(const Document *given, int count) {
    int uniform = AS_INT(PARTS) == UNIFORM, moving = is_trained(KEY);
    if (!uniform) fill_scores();
    clear(gradient[VALUE], vocabulary * width);
    if (moving) clear(score_gradient, width * width);
    double loss = 0;
    Document drawn;
    for (int i = 0; i < count; i++) {
        const Document *document = given ? given + i : i < SHOWN ? shown + i : &drawn;
        if (!given) draw_document(&documents, (Document *)document);
        count_bag(document, uniform, 1.0 / count);
        attend(uniform);
        predict();
        for (int row = 0; row < ((rows + 3) & ~3); row++) loss += row_loss(row);
        if (is_trained(VALUE)) value_gradient();
        if (moving) attention_gradient();
    }
    if (moving) {
        float scale = (float)(1 / square_root(vocabulary));
        multiply(weight[QUERY], score_gradient, gradient[KEY], scale);
        /* The table of scores has done its work: it holds dS transposed. */
        transpose(score_gradient, score);
        multiply(weight[KEY], score, gradient[QUERY], scale);
    }
    if (setting[L2] > 0)
        for (int matrix = 0; matrix < MATRICES; matrix++)
            if (is_trained(matrix))
                for (int j = 0; j < vocabulary * width; j += 4)
                    AT(gradient[matrix] + j) += splat((float)(2 * setting[L2])) * AT(weight[matrix] + j);
    return loss;
}

/* PyTorch's rules (training/optimizers.py); Adam's betas are 0.9 and 0.999, the momentum is 0.9. */
static void update(int matrix) {
    float *w = weight[matrix], *g = gradient[matrix], *m = first[matrix], *s = second[matrix];
    int count = vocabulary * width, kind = AS_INT(OPTIMIZER);
    f4 rate = splat((float)setting[RATE]);
    if (kind != ADAM) {
        for (int j = 0; j < count; j += 4) {
            f4 change = AT(g + j);
            if (kind == MOMENTUM) change = AT(m + j) = splat(0.9f) * AT(m + j) + change;
            AT(w + j) -= rate * change;
        }
        return;
    }
    updates[matrix]++;
    double left_first = 1 - exponential(updates[matrix] * logarithm(0.9));
    double left_second = 1 - exponential(updates[matrix] * logarithm(0.999));
    f4 size = splat((float)(setting[RATE] / left_first)), whiten = splat((float)(1 / square_root(left_second)));
    f4 epsilon = splat((float)setting[EPSILON]);
    for (int j = 0; j < count; j += 4) {
        f4 slope = AT(g + j), root;
        AT(m + j) += splat(0.1f) * (slope - AT(m + j));
        AT(s + j) = splat(0.999f) * AT(s + j) + splat(0.001f) * (slope * slope);
        for (int i = 0; i < 4; i++) root[i] = __builtin_sqrtf(s[j + i]);
        AT(w + j) -= size * AT(m + j) / (root * whiten + epsilon);
    }
}

static void fill(const ClassMatrix *classes) {
    int words = AS_INT(WORDS);
    clear(weight[VALUE], vocabulary * width);
    for (int seen = 0; seen < vocabulary; seen++)
        for (int i = 1; i < vocabulary; i++) {
            double entry = !seen ? classes->mask_column : (seen - 1) / words != (i - 1) / words ? classes->different_topic
                           : seen == i ? classes->same_word : classes->same_topic;
            weight[VALUE][seen * width + i] = (float)entry;
        }
}

/* Draws the documents that attention is measured on; anew when the setting changes. */
void EXPORT(draw_held_out)(void) {
    seed_random(&held_out_documents, 1, 3);
    for (int i = 0; i < SHOWN; i++) draw_document(&held_out_documents, held_out + i);
}

/* W^V at Theorem 2's. */
void EXPORT(set_theorem_2)(void) {
    ClassMatrix classes = theorem_2();
    fill(&classes);
}

/* Forget the optimiser's averages: another optimiser begins. */
void EXPORT(forget)(void) {
    for (int matrix = 0; matrix < MATRICES; matrix++) {
        clear(first[matrix], vocabulary * width);
        clear(second[matrix], vocabulary * width);
        updates[matrix] = 0;
    }
}

/* Begin: weights from N(0, scale^2), W^V at Theorem 2's if it is frozen there, step 0. */
void EXPORT(start)(double seed) {
    vocabulary = AS_INT(TOPICS) * AS_INT(WORDS) + 1;
    width = (vocabulary + 7) & ~7;
    step_number = 0;
    Random draws;
    seed_random(&documents, (u64)seed, 1);
    seed_random(&draws, (u64)seed, 2);
    for (int matrix = 0; matrix < MATRICES; matrix++) {
        clear(weight[matrix], width * width);
        clear(gradient[matrix], width * width);
        for (int i = 0; i < vocabulary; i++)
            for (int j = 0; j < vocabulary; j++)
                weight[matrix][i * width + j] = (float)(setting[SCALE] * draw_normal(&draws));
    }
    if (AS_INT(PARTS) == THEOREM) set_theorem_2();
    clear(score_gradient, width * width);
    forget();
    draw_held_out();
    /* Something to look at before the first step; the run draws the same documents again. */
    Random peek = documents;
    for (int i = 0; i < SHOWN; i++) draw_document(&peek, shown + i);
}

/* Steps of training; the loss of the last batch, before its update. */
double EXPORT(train)(int steps) {
    double loss = 0;
    while (steps-- > 0) {
        loss = pass(0, AS_INT(BATCH));
        for (int matrix = 0; matrix < MATRICES; matrix++)
            if (is_trained(matrix)) update(matrix);
        step_number++;
    }
    return loss;
}

/* The loss and the gradients on the documents shown, which the caller may have written: for tests. */
double EXPORT(pass_on_shown)(int count) { return pass(shown, count); }

/* Draw the documents shown, for tests of the samplers. */
void EXPORT(draw_shown)(void) {
    for (int i = 0; i < SHOWN; i++) draw_document(&documents, shown + i);
}

/* What the page shows of the state, a number each. */
enum {
    NORM_VALUE, NORM_KEY, NORM_QUERY, VALUE_SAME_WORD, VALUE_SAME_TOPIC, VALUE_DIFFERENT, VALUE_MASK_COLUMN,
    VALUE_MASK_ROW, ATTENTION_SAME_WORD, ATTENTION_SAME_TOPIC, ATTENTION_DIFFERENT, FROM_UNIFORM_WORDS,
    FROM_UNIFORM_MASK, UNIFORM_LOSS, MEASURES
};
static double measured[MEASURES];

/* The expected squared loss of W^V under uniform attention, 1 - 2 <W, R> + <W S, W>, from class moments. */
static double uniform_loss(void) {
    Moments moments = class_moments();
    int words = AS_INT(WORDS), topics = AS_INT(TOPICS), count = topics * words;
    double loss = 1;
    for (int i = 0; i < vocabulary; i++) {
        double mask = weight[VALUE][i], total = 0, squares = 0, by_topic = 0, own = 0;
        for (int t = 0; t < topics; t++) {
            double here = 0;
            for (int j = 1 + t * words; j <= (t + 1) * words; j++) {
                double w = weight[VALUE][j * width + i];
                here += w;
                squares += w * w;
            }
            total += here;
            by_topic += here * here / words;
            if (i && (i - 1) / words == t) own = here / words;
        }
        double mean = total / count;
        loss += moments.second_mask * mask * mask + 2 * mask * moments.second_coupling * total / square_root(count) +
                moments.second_within * (squares - by_topic) + moments.second_between * (by_topic - total * mean) +
                moments.second_mean * total * mean;
        if (!i) continue;
        loss -= 2 * (mask * moments.cross_mask / square_root(count) +
                     moments.cross_within * (weight[VALUE][i * width + i] - own) +
                     moments.cross_between * (own - mean) + moments.cross_mean * mean);
    }
    return loss;
}

/* What two words have in common: 0 the word, 1 the topic, 2 nothing. */
static int kinship(int one, int other) {
    int words = AS_INT(WORDS);
    return one == other ? 0 : (one - 1) / words == (other - 1) / words ? 1 : 2;
}

/* Average attention by what two words have in common (measure/attention.py), and how far each query's attention is from
   uniform in total variation (measure/stages.py), on the documents held out. */
static void measure_attention(int uniform) {
    double sums[3] = {0}, pairs[3] = {0}, far[2] = {0}, queries[2] = {0};
    static float seen[MOST_WIDTH];
    for (int d = 0; d < SHOWN; d++) {
        const Document *document = held_out + d;
        count_bag(document, 1, 1);
        clear(seen, width);
        for (int i = 0; i < document->length; i++) seen[document->token[i]] += 1;
        float number = 0;
        for (int k = 0; k < keys; k++) number += key_count[k];
        for (int token = 0; token < vocabulary; token++) {
            if (!seen[token]) continue;
            rows = 1;
            row_token[0] = token;
            attend(uniform);
            double distance = 0;
            for (int k = 0; k < keys; k++) {
                double a = attention[0][k], gap = a - key_count[k] / number;
                distance += gap < 0 ? -gap : gap;
                if (token && key_token[k]) {
                    int kind = kinship(token, key_token[k]);
                    sums[kind] += (seen[token] - (kind == 0)) * a;
                }
            }
            for (int key = 1; token && key < vocabulary; key++) {
                int kind = kinship(token, key);
                pairs[kind] += (seen[token] - (kind == 0)) * seen[key];
            }
            far[!token] += seen[token] * distance / 2;
            queries[!token] += seen[token];
        }
    }
    for (int kind = 0; kind < 3; kind++) measured[ATTENTION_SAME_WORD + kind] = pairs[kind] ? sums[kind] / pairs[kind] : 0;
    for (int kind = 0; kind < 2; kind++) measured[FROM_UNIFORM_WORDS + kind] = queries[kind] ? far[kind] / queries[kind] : 0;
}

double *EXPORT(measure)(void) {
    int uniform = AS_INT(PARTS) == UNIFORM;
    for (int matrix = 0; matrix < MATRICES; matrix++) {
        double square = 0;
        for (int j = 0; j < vocabulary * width; j++) square += (double)weight[matrix][j] * weight[matrix][j];
        measured[NORM_VALUE + matrix] = square_root(square);
    }
    double sums[5] = {0}, count[5] = {0};
    for (int seen = 0; seen < vocabulary; seen++)
        for (int i = 0; i < vocabulary; i++) {
            int kind = !i ? 4 : !seen ? 3 : kinship(seen, i);
            sums[kind] += weight[VALUE][seen * width + i];
            count[kind]++;
        }
    for (int kind = 0; kind < 5; kind++) measured[VALUE_SAME_WORD + kind] = count[kind] ? sums[kind] / count[kind] : 0;
    if (!uniform) fill_scores();
    measure_attention(uniform);
    measured[UNIFORM_LOSS] = uniform_loss();
    return measured;
}

/* Attention's logits between tokens, for a picture: filled by measure (not under uniform attention). */
float *EXPORT(scores)(void) { return score; }

/* The seed's start, kept while the prediction lets its modes grow: not for a core that is training. */
void keep_start(double seed) {
    start(seed);
    for (int matrix = KEY; matrix < MATRICES; matrix++)
        for (int j = 0; j < width * width; j++) first[matrix][j] = weight[matrix][j];
}

/* How far words' attention is from uniform where W^K and W^Q have grown from the start as linear functions of both: on
   contrasts between topics, on those within a topic, and on the plane of [MASK] and the mean word. */
double grown_distance(const double topic_mode[4], const double word_mode[4], const double plane_mode[16]) {
    int words = AS_INT(WORDS), topics = AS_INT(TOPICS);
    double count = words * topics, root = square_root(count);
    for (int row = 0; row < vocabulary; row++) {
        const float *k = first[KEY] + row * width, *q = first[QUERY] + row * width;
        float *to_k = weight[KEY] + row * width, *to_q = weight[QUERY] + row * width;
        double all[2] = {0, 0}, out[4] = {0};
        for (int j = 1; j < vocabulary; j++) { all[0] += k[j]; all[1] += q[j]; }
        double plane[4] = {k[0], all[0] / root, q[0], all[1] / root};
        for (int i = 0; i < 16; i++) out[i / 4] += plane_mode[i] * plane[i % 4];
        for (int t = 0; t < topics; t++) {
            double mean[2] = {0, 0};
            for (int j = 1 + t * words; j <= (t + 1) * words; j++) { mean[0] += k[j] / words; mean[1] += q[j] / words; }
            double bk = mean[0] - all[0] / count, bq = mean[1] - all[1] / count;
            for (int j = 1 + t * words; j <= (t + 1) * words; j++) {
                double wk = k[j] - mean[0], wq = q[j] - mean[1];
                to_k[j] = (float)(word_mode[0] * wk + word_mode[1] * wq + topic_mode[0] * bk + topic_mode[1] * bq +
                                  out[1] / root);
                to_q[j] = (float)(word_mode[2] * wk + word_mode[3] * wq + topic_mode[2] * bk + topic_mode[3] * bq +
                                  out[3] / root);
            }
        }
        to_k[0] = (float)out[0];
        to_q[0] = (float)out[2];
    }
    fill_scores();
    measure_attention(0);
    return measured[FROM_UNIFORM_WORDS];
}
