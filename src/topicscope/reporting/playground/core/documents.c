/* Random numbers, a little mathematics, and documents: drawn from the topic model (3.1, 6.1), then masked (3.2). */
#include "playground.h"

double setting[SETTINGS];

/* xoshiro256++ (Blackman and Vigna), its state from splitmix64. */
static u64 splitmix(u64 *state) {
    u64 z = (*state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

void seed_random(Random *random, u64 seed, u64 purpose) {
    u64 state = seed;
    state = splitmix(&state) + purpose;
    for (int i = 0; i < 4; i++) random->s[i] = splitmix(&state);
}

static u64 rotate(u64 x, int k) { return (x << k) | (x >> (64 - k)); }

static u64 draw_64(Random *random) {
    u64 *s = random->s, result = rotate(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3]; s[2] ^= t; s[3] = rotate(s[3], 45);
    return result;
}

u32 draw_bits(Random *random) { return (u32)(draw_64(random) >> 32); }

/* A whole number below count; what it is off by (count / 2^32) no experiment sees. */
u32 draw_below(Random *random, u32 count) { return (u32)(((u64)draw_bits(random) * count) >> 32); }

static double draw_uniform(Random *random) { return (double)(draw_64(random) >> 11) * 0x1p-53; }

int draw_chance(Random *random, double probability) { return draw_uniform(random) < probability; }

/* Marsaglia's polar method; the second of each pair is left. */
double draw_normal(Random *random) {
    double x, y, size;
    do {
        x = 2 * draw_uniform(random) - 1;
        y = 2 * draw_uniform(random) - 1;
        size = x * x + y * y;
    } while (size >= 1 || size == 0);
    return x * square_root(-2 * logarithm(size) / size);
}

double square_root(double x) { return __builtin_sqrt(x); }

/* 2^k e^r with |r| at most ln 2 / 2; zero where it would be denormal. */
double exponential(double x) {
    if (x < -700) return 0;
    if (x > 700) x = 700;
    double k = __builtin_floor(x * 1.4426950408889634 + 0.5);
    double r = (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10, sum = 1;
#pragma clang loop unroll(full)
    for (int i = 14; i >= 1; i--) sum = 1 + sum * r * (1.0 / i);
    union { u64 bits; double value; } power = {(u64)(1023 + (int)k) << 52};
    return sum * power.value;
}

/* log(2^k m) with m near 1: k ln 2 + 2 artanh((m - 1) / (m + 1)). */
double logarithm(double x) {
    union { double value; u64 bits; } u = {x};
    int k = (int)(u.bits >> 52) - 1023;
    u.bits = (u.bits & 0xFFFFFFFFFFFFFull) | (1023ull << 52);
    if (u.value > 1.4142135623730951) { u.value /= 2; k++; }
    double s = (u.value - 1) / (u.value + 1), square = s * s, sum = 0;
    for (int i = 25; i >= 1; i -= 2) sum = sum * square + 1.0 / i;
    return k * 0.693147180559945309417 + 2 * s * sum;
}

/* Gauss's elimination, the largest entry of a column first. */
void solve(double *matrix, double *vector, int size) {
    for (int c = 0; c < size; c++) {
        int best = c;
        for (int r = c + 1; r < size; r++)
            if (__builtin_fabs(matrix[r * size + c]) > __builtin_fabs(matrix[best * size + c])) best = r;
        for (int k = 0; k < size && best != c; k++) {
            double kept = matrix[c * size + k];
            matrix[c * size + k] = matrix[best * size + k];
            matrix[best * size + k] = kept;
        }
        double kept = vector[c];
        vector[c] = vector[best];
        vector[best] = kept;
        for (int r = c + 1; r < size; r++) {
            double factor = matrix[r * size + c] / matrix[c * size + c];
            for (int k = c; k < size && factor != 0; k++) matrix[r * size + k] -= factor * matrix[c * size + k];
            vector[r] -= factor * vector[c];
        }
    }
    for (int r = size - 1; r >= 0; r--) {
        for (int k = r + 1; k < size; k++) vector[r] -= matrix[r * size + k] * vector[k];
        vector[r] /= matrix[r * size + r];
    }
}

/* The topic of each word. LDA's by Polya's urn (Blackwell and MacQueen): word i has a new topic with probability
   A / (A + i), A the Dirichlet's sum, and else that of a word before it, all equally likely. */
static void draw_topics(Random *random, int length, short *topic) {
    int topics = AS_INT(TOPICS), chosen = AS_INT(PER_DOCUMENT);
    if (AS_INT(SAMPLER) == TOPIC_SETS) {
        short order[MOST_TOPICS];
        for (int t = 0; t < topics; t++) order[t] = (short)t;
        for (int t = 0; t < chosen; t++) {
            int other = t + (int)draw_below(random, (u32)(topics - t));
            short kept = order[t];
            order[t] = order[other];
            order[other] = kept;
        }
        for (int i = 0; i < length; i++) topic[i] = order[draw_below(random, (u32)chosen)];
        return;
    }
    double total = setting[DIRICHLET] * topics;
    for (int i = 0; i < length; i++)
        topic[i] = draw_chance(random, total / (total + i)) ? (short)draw_below(random, (u32)topics)
                                                             : topic[draw_below(random, (u32)i)];
}

/* Topics, then words: one of the topic's own, or, where topics overlap, one of all. */
static void draw_words(Random *random, Document *document) {
    int words = AS_INT(WORDS), all = words * AS_INT(TOPICS), shortest = AS_INT(SHORTEST);
    document->length = shortest + (int)draw_below(random, (u32)(AS_INT(LONGEST_DOCUMENT) - shortest + 1));
    short topic[LONGEST];
    draw_topics(random, document->length, topic);
    for (int i = 0; i < document->length; i++) {
        int common = setting[OVERLAP] > 0 && draw_chance(random, setting[OVERLAP]);
        document->word[i] = (short)(common ? 1 + draw_below(random, (u32)all)
                                           : 1 + topic[i] * words + draw_below(random, (u32)words));
    }
}

/* A mask that masks nothing is drawn again, and with masked keys hidden one that leaves no key too. */
static void draw_mask(Random *random, Document *document) {
    int length = document->length, all = AS_INT(WORDS) * AS_INT(TOPICS);
    do {
        document->masked_count = 0;
        for (int i = 0; i < length; i++)
            document->masked_count += document->masked[i] = (unsigned char)draw_chance(random, setting[MASK]);
    } while (!document->masked_count || (setting[HIDDEN_KEYS] && document->masked_count == length));
    for (int i = 0; i < length; i++) {
        document->token[i] = document->word[i];
        if (!document->masked[i]) continue;
        double fate = draw_uniform(random);
        if (fate < setting[KEEP]) continue;
        document->token[i] = fate < setting[KEEP] + setting[RANDOM] ? (short)(1 + draw_below(random, (u32)all)) : 0;
    }
}

void draw_document(Random *random, Document *document) {
    draw_words(random, document);
    draw_mask(random, document);
}

#ifdef SOURCE_HASH
/* Which sources this was built from; a test looks for it in the built file. */
const char *EXPORT(built_from)(void) { return SOURCE_HASH; }
#endif
