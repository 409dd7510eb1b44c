/* The best W^V under uniform attention where there is no closed form: for the cross-entropy, and where masked keys are
   hidden. As theory/cross_entropy.py has it: the optimum treats all words and topics alike, so it has six different
   entries, which Newton's method finds on a sample of documents; its loss is then the mean over other documents.

   No sample is kept: each look at it draws the same documents again. */
#include "playground.h"

#define SAMPLED 6000         /* documents that the six entries are found on */
#define LEAST_GAIN 1e-12     /* Newton's method stops when a step promises less */
#define LEAST_RIDGE 1e-9     /* without L2 the cross-entropy's optimum is at infinity: [MASK] is never right */

/* [MASK]'s column, same word, same topic, different topic, [MASK]'s row, [MASK] with itself. */
enum { ENTRIES = 6 };
typedef struct { double value, gradient[ENTRIES], hessian[ENTRIES][ENTRIES]; } Terms;

static double entry[ENTRIES], direction[ENTRIES], size, promised, sample_seed;
static Terms here;

/* Words that are alike in a document: as often there, their topic as often, as many of them, so often to be predicted. */
typedef struct { double own, topic, number, target; } Group;
static Group group[2 * MOST_WORDS + 1];
static int groups;
static double mask_share;

static void count_groups(const Document *document) {
    static int seen[MOST_WORDS], wanted[MOST_WORDS];
    int words = AS_INT(WORDS), topics = AS_INT(TOPICS), all = words * topics, keys = 0, masks = 0;
    for (int i = 0; i < all; i++) seen[i] = wanted[i] = 0;
    for (int i = 0; i < document->length; i++) {
        if (document->masked[i]) wanted[document->word[i] - 1]++;
        if (document->masked[i] && setting[HIDDEN_KEYS]) continue;
        keys++;
        if (document->token[i]) seen[document->token[i] - 1]++;
        else masks++;
    }
    groups = 1;
    group[0] = (Group){0, 0, 0, 0}; /* the words of topics that do not occur */
    mask_share = (double)masks / keys;
    for (int t = 0; t < topics; t++) {
        int in_topic = 0;
        for (int i = t * words; i < (t + 1) * words; i++) in_topic += seen[i];
        Group *unseen = group;
        if (in_topic) {
            unseen = group + groups++;
            *unseen = (Group){0, (double)in_topic / keys, 0, 0};
        }
        for (int i = t * words; i < (t + 1) * words; i++) {
            Group *mine = unseen;
            if (seen[i]) {
                mine = group + groups++;
                *mine = (Group){(double)seen[i] / keys, unseen->topic, 0, 0};
            }
            mine->number++;
            mine->target += (double)wanted[i] / document->masked_count;
        }
    }
}

static double score_of(const double x[ENTRIES], const Group *g) {
    return x[0] * mask_share + x[1] * g->own + x[2] * (g->topic - g->own) + x[3] * (1 - mask_share - g->topic);
}

/* Adds the products of a feature vector with itself. */
static void add_square(double out[ENTRIES][ENTRIES], const double f[ENTRIES], double weight) {
    for (int i = 0; i < ENTRIES; i++)
        for (int j = 0; j <= i; j++) out[i][j] += weight * f[i] * f[j];
}

/* The loss of one document, and what it adds to the gradient and the Hessian if they are wanted. */
static double document_terms(const double x[ENTRIES], Terms *terms) {
    int squared = AS_INT(LOSS) == SQUARED;
    double of_mask = x[4] * (1 - mask_share) + x[5] * mask_share, largest = of_mask, total = 0, loss = squared;
    static double score[2 * MOST_WORDS + 1];
    for (int i = 0; i < groups; i++) {
        score[i] = score_of(x, group + i);
        if (score[i] > largest) largest = score[i];
    }
    for (int i = 0; i < groups && !squared; i++) total += group[i].number * exponential(score[i] - largest);
    if (!squared) total += exponential(of_mask - largest);
    if (squared) loss += of_mask * of_mask;
    else loss += largest + logarithm(total);
    double mean[ENTRIES] = {0}, mask_feature[ENTRIES] = {0, 0, 0, 0, 1 - mask_share, mask_share};
    for (int i = 0; i <= groups; i++) {
        /* The last one is [MASK]. */
        const Group *g = group + i;
        double s = i < groups ? score[i] : of_mask, number = i < groups ? g->number : 1, target = i < groups ? g->target : 0;
        double feature[ENTRIES] = {mask_share, g->own, g->topic - g->own, 1 - mask_share - g->topic, 0, 0};
        const double *f = i < groups ? feature : mask_feature;
        if (i < groups) loss += squared ? number * s * s - 2 * s * target : -s * target;
        if (!terms) continue;
        double guess = squared ? number * s : number * exponential(s - largest) / total, factor = squared ? 2 : 1;
        for (int k = 0; k < ENTRIES; k++) {
            terms->gradient[k] += factor * (guess - target) * f[k];
            mean[k] += guess * f[k];
        }
        add_square(terms->hessian, f, squared ? 2 * number : guess);
    }
    if (terms && !squared) add_square(terms->hessian, mean, -1);
    return loss;
}

/* The objective with its derivatives on the sample. */
static Terms look(const double x[ENTRIES]) {
    double count = setting[TOPICS] * setting[WORDS], v = setting[WORDS];
    double ridge = setting[L2] > LEAST_RIDGE ? setting[L2] : LEAST_RIDGE;
    double penalty[ENTRIES] = {count, count, count * (v - 1), count * (count - v), count, 1};
    Terms terms = {0};
    Random draws;
    Document document;
    seed_random(&draws, (u64)sample_seed, 6);
    for (int i = 0; i < SAMPLED; i++) {
        draw_document(&draws, &document);
        count_groups(&document);
        terms.value += document_terms(x, &terms);
    }
    terms.value /= SAMPLED;
    for (int i = 0; i < ENTRIES; i++) {
        terms.value += ridge * penalty[i] * x[i] * x[i];
        terms.gradient[i] = terms.gradient[i] / SAMPLED + 2 * ridge * penalty[i] * x[i];
        for (int j = 0; j <= i; j++) terms.hessian[j][i] = terms.hessian[i][j] /= SAMPLED;
        /* A class without entries (v = 1) stays at zero. */
        terms.hessian[i][i] += penalty[i] > 0 ? 2 * ridge * penalty[i] : 1;
    }
    return terms;
}

static void aim(void) {
    double matrix[ENTRIES * ENTRIES];
    for (int i = 0; i < ENTRIES * ENTRIES; i++) matrix[i] = here.hessian[i / ENTRIES][i % ENTRIES];
    for (int i = 0; i < ENTRIES; i++) direction[i] = -here.gradient[i];
    solve(matrix, direction, ENTRIES);
    promised = 0;
    for (int i = 0; i < ENTRIES; i++) promised -= here.gradient[i] * direction[i];
    size = promised < LEAST_GAIN ? 0 : 1;
}

static Random loss_documents;
static double loss_sums[3]; /* documents, sum of their losses and of the squares */

void EXPORT(optimum_begin)(double seed) {
    sample_seed = seed;
    for (int i = 0; i < ENTRIES; i++) entry[i] = 0;
    here = look(entry);
    aim();
    seed_random(&loss_documents, (u64)seed, 7);
    for (int i = 0; i < 3; i++) loss_sums[i] = 0;
}

/* One look at the sample more; whether the entries are found. */
int EXPORT(optimum_step)(void) {
    double tried[ENTRIES];
    if (size < 1e-6) return 1;
    for (int i = 0; i < ENTRIES; i++) tried[i] = entry[i] + size * direction[i];
    Terms there = look(tried);
    if (!(there.value <= here.value - 0.1 * size * promised)) {
        size /= 2;
        return size < 1e-6;
    }
    for (int i = 0; i < ENTRIES; i++) entry[i] = tried[i];
    here = there;
    aim();
    return size < 1e-6;
}

/* The six entries, to be read, or written by tests. */
double *EXPORT(optimum_entries)(void) { return entry; }

/* The loss, without L2, on so many more documents. */
double *EXPORT(optimum_add)(int count) {
    Document document;
    while (count-- > 0) {
        draw_document(&loss_documents, &document);
        count_groups(&document);
        double loss = document_terms(entry, 0);
        loss_sums[0]++;
        loss_sums[1] += loss;
        loss_sums[2] += loss * loss;
    }
    return loss_sums;
}
