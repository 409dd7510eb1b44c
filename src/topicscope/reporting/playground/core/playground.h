/* What the parts of the playground share: the setting, random numbers and a little mathematics.

   No library is linked, so that the same file runs in a browser, in a test and on its own. Token 0 is [MASK]; words are
   1 ... Tv, word i belongs to topic (i - 1) / v, counted from 0. */
#ifndef PLAYGROUND_H
#define PLAYGROUND_H

#define MOST_WORDS 256       /* Tv at most; the page says so */
#define MOST_WIDTH 264       /* V = Tv + 1 rounded up to a multiple of 8 */
#define LONGEST 400          /* words per document at most */
#define MOST_TOPICS 128
#define SHOWN 8              /* documents kept to be looked at */
#define PI 3.14159265358979323846

#ifdef __wasm__
#define EXPORT(name) __attribute__((export_name(#name))) name
#else
#define EXPORT(name) __attribute__((visibility("default"))) name
#endif

/* The setting, a number each: the callers write them in this order. */
enum {
    TOPICS, WORDS, SAMPLER, PER_DOCUMENT, DIRICHLET, OVERLAP, SHORTEST, LONGEST_DOCUMENT,
    MASK, KEEP, RANDOM, HIDDEN_KEYS, LOSS, OPTIMIZER, RATE, EPSILON, BATCH, L2, SCALE, PARTS, SETTINGS
};
enum { DIRICHLET_SAMPLER, TOPIC_SETS };
enum { CROSS_ENTROPY, SQUARED };
enum { SGD, MOMENTUM, ADAM };
/* Which parts are trained: all of eq. 7; W^V with attention held uniform; W^V alone, W^K and W^Q frozen where they are;
   W^K and W^Q alone, W^V frozen at Theorem 2's. */
enum { ALL, UNIFORM, VALUE_ALONE, THEOREM };

extern double setting[SETTINGS];
#define AS_INT(name) ((int)setting[name])

typedef unsigned int u32;
typedef unsigned long long u64;

typedef struct { u64 s[4]; } Random;
void seed_random(Random *random, u64 seed, u64 purpose);
u32 draw_bits(Random *random);
u32 draw_below(Random *random, u32 count);
int draw_chance(Random *random, double probability);
double draw_normal(Random *random);

double exponential(double x);
double logarithm(double x);
double square_root(double x);
/* Solves matrix x = vector, both overwritten: x stands in the vector. */
void solve(double *matrix, double *vector, int size);

/* A masked document: what the model sees, what was there, and which positions are to be predicted. */
typedef struct {
    int length, masked_count;
    short token[LONGEST], word[LONGEST];
    unsigned char masked[LONGEST];
} Document;
void draw_document(Random *random, Document *document);
Document *shown_documents(void);

/* Moments of finite documents under uniform attention, on the spaces that permutations leave alone
   (theory/finite_documents.py: class_moments). */
typedef struct {
    double second_within, second_between, second_coupling, second_mean, second_mask;
    double cross_within, cross_between, cross_mask, cross_mean;
} Moments;
Moments class_moments(void);
/* [MASK]'s column, same word, same topic, different topic. */
typedef struct { double mask_column, same_word, same_topic, different_topic; } ClassMatrix;
ClassMatrix theorem_2(void);
ClassMatrix class_optimum(const Moments *moments, double ridge);
/* Gradient descent from zero under uniform attention, after so many steps. */
ClassMatrix descend(const Moments *moments, double ridge, double rate, double steps);
double class_loss(const ClassMatrix *matrix, const Moments *moments);

/* Eigenvalues of a symmetric 2 x 2 matrix, the larger one first, and its eigenvector (the other is orthogonal to it). */
void eigen(double a, double b, double d, double values[2], double vector[2]);

/* For the prediction: the seed's start, and attention's distance from uniform when it has grown by these matrices. */
void keep_start(double seed);
double grown_distance(const double topic_mode[4], const double word_mode[4], const double plane_mode[16]);

#endif
