/* Theory for the setting, as the Python functions of theory/ have it: Theorem 2, the finite-document optimum and the path
   of gradient descent to it (finite_documents.py), and the loss over attention's weights (landscape.py). */
#include "playground.h"

static double power(double x, double exponent) { return x > 0 ? exponential(exponent * logarithm(x)) : exponent == 0; }
static double larger(double x, double y) { return x > y ? x : y; }
static double smaller(double x, double y) { return x < y ? x : y; }
static double size_of(double x) { return x < 0 ? -x : x; }

/* 1 - p_c - p_r, and nothing if it is only rounding. */
static double replaced(void) {
    double left = 1 - setting[KEEP] - setting[RANDOM];
    return left > 1e-12 ? left : 0;
}

/* E[theta_t^2] - E[theta_t theta_t'] of two topics. */
static double topic_contrast(void) {
    double topics = setting[TOPICS], chosen = setting[PER_DOCUMENT];
    if (AS_INT(SAMPLER) == DIRICHLET_SAMPLER) return 1 / (topics * (topics * setting[DIRICHLET] + 1));
    return topics > 1 ? (topics - chosen) / (chosen * topics * (topics - 1)) : 0;
}

Moments class_moments(void) {
    /* Shares of positions and of pairs, masked or not, for N uniform and |M| binomial given |M| >= 1 (eq. 1's mean). */
    double masked = 0, pair_masked = 0, pair_mixed = 0, pair_seen = 0, self_masked = 0, self_seen = 0, own = 0;
    double other_masked = 0, p = setting[MASK], lengths = setting[LONGEST_DOCUMENT] - setting[SHORTEST] + 1;
    for (double n = setting[SHORTEST]; n <= setting[LONGEST_DOCUMENT]; n++) {
        double some = 1 - power(1 - p, n);
        double m = n * p / some, m2 = (n * (n - 1) * p * p + n * p) / some;
        masked += m / n / lengths;
        pair_masked += (m2 - m) / (n * n) / lengths;
        pair_mixed += (n * m - m2) / (n * n) / lengths;
        pair_seen += (n * (n - 1) - (2 * n - 1) * m + m2) / (n * n) / lengths;
        self_masked += m / (n * n) / lengths;
        self_seen += (n - m) / (n * n) / lengths;
        own += 1 / n / lengths;
        other_masked += (m - 1) / n / lengths;
    }
    double count = setting[TOPICS] * setting[WORDS], keep = setting[KEEP], noise = setting[RANDOM] / count;
    double disjoint = 1 - setting[OVERLAP], variance = disjoint * disjoint * topic_contrast() / setting[WORDS];
    double pairs = pair_masked * keep * keep + 2 * pair_mixed * keep + pair_seen, mixed = pair_masked * keep + pair_mixed;
    double itself = self_masked * (noise + keep / count) + self_seen / count;
    double kept = own * keep / count, others = other_masked * keep + 1 - masked, predicted = own + other_masked;
    return (Moments){
        .second_within = itself,
        .second_between = itself + pairs * variance,
        .second_coupling = square_root(count) * replaced() * (pair_masked * noise + mixed / count),
        .second_mean = itself + pairs / count + 2 * mixed * noise + pair_masked * count * noise * noise,
        .second_mask = replaced() * (pair_masked * replaced() + self_masked),
        .cross_within = kept,
        .cross_between = kept + others * variance,
        .cross_mask = predicted * replaced() / square_root(count),
        .cross_mean = kept + others / count + predicted * noise,
    };
}

void eigen(double a, double b, double d, double values[2], double vector[2]) {
    double half = (a - d) / 2, root = square_root(half * half + b * b), centre = (a + d) / 2;
    values[0] = centre + root;
    values[1] = centre - root;
    double x = half + root, y = b;
    if (half < 0) { x = b; y = root - half; }
    double norm = square_root(x * x + y * y);
    vector[0] = norm > 0 ? x / norm : 1;
    vector[1] = norm > 0 ? y / norm : 0;
}

/* From what a matrix does on contrasts within topics, between topics, and on ([MASK], mean word). */
static ClassMatrix from_spaces(double within, double between, double mask, double mean) {
    double count = setting[TOPICS] * setting[WORDS], different = (mean - between) / count;
    double same = different + (between - within) / setting[WORDS];
    return (ClassMatrix){mask / square_root(count), same + within, same, different};
}

/* What gradient descent from zero has reached along a direction of this curvature: progress / curvature; everything if
   steps is negative; nothing along a direction that the documents never reach. */
static double reached(double curvature, double rate, double steps, double least) {
    if (curvature <= least) return steps < 0 ? 0 : 2 * rate * steps;
    if (steps < 0) return 1 / curvature;
    double shrink = 1 - 2 * rate * curvature, left = power(size_of(shrink), steps);
    if (shrink < 0 && (long long)steps % 2) left = -left;
    return (1 - left) / curvature;
}

ClassMatrix descend(const Moments *m, double ridge, double rate, double steps) {
    double values[2], vector[2];
    eigen(m->second_mask, m->second_coupling, m->second_mean, values, vector);
    double least = 1e-15 * values[0] - ridge;
    double along = m->cross_mask * vector[0] + m->cross_mean * vector[1];
    double across = -m->cross_mask * vector[1] + m->cross_mean * vector[0];
    along *= reached(values[0] + ridge, rate, steps, least + ridge);
    across *= reached(values[1] + ridge, rate, steps, 1e-15 * values[0]);
    return from_spaces(m->cross_within * reached(m->second_within + ridge, rate, steps, 0),
                       m->cross_between * reached(m->second_between + ridge, rate, steps, 0),
                       along * vector[0] - across * vector[1], along * vector[1] + across * vector[0]);
}

ClassMatrix class_optimum(const Moments *moments, double ridge) { return descend(moments, ridge, 0, -1); }

double class_loss(const ClassMatrix *w, const Moments *m) {
    double topics = setting[TOPICS], words = setting[WORDS], count = topics * words;
    double within = w->same_word - w->same_topic, between = within + words * (w->same_topic - w->different_topic);
    double mask = square_root(count) * w->mask_column, mean = between + count * w->different_topic;
    return 1 + topics * (words - 1) * (within * within * m->second_within - 2 * within * m->cross_within) +
           (topics - 1) * (between * between * m->second_between - 2 * between * m->cross_between) +
           mask * mask * m->second_mask + 2 * mask * mean * m->second_coupling + mean * mean * m->second_mean -
           2 * (mask * m->cross_mask + mean * m->cross_mean);
}

ClassMatrix theorem_2(void) {
    double count = setting[TOPICS] * setting[WORDS], hidden = (1 - setting[KEEP]) * setting[MASK];
    double c3 = 1 / (1 - hidden), c1 = setting[RANDOM] / replaced() * c3 / count;
    double c2 = 1 / (replaced() * setting[MASK]) - 1, norm = c2 * c2 + count;
    double different = -(c1 * c2 + c3) / norm, same = different + c3 / setting[WORDS];
    return (ClassMatrix){(c2 * c3 - c1 * count) / norm, same, same, different};
}

/* The landscape: one kind of query after another; a prediction takes one value per class of words, N_k / Z, both linear
   in (1, alpha, beta) (the weight on [MASK] keys is 1, Assumption 2). */
typedef struct { double probability, count[4], target[4], numerator[4][3], normaliser[3]; int classes; } Kind;
static Kind kind[4];
static int kinds;
static ClassMatrix landscape_value;
static int landscape_mask_queries;

static void numerators(Kind *k, double mask_constant, double mask_beta, const double words[3], double topic[4][3],
                       double word[4][3]) {
    const ClassMatrix *w = &landscape_value;
    double to_mask[3] = {mask_constant, 0, mask_beta};
    for (int c = 0; c < k->classes; c++)
        for (int i = 0; i < 3; i++)
            k->numerator[c][i] = w->mask_column * to_mask[i] + w->different_topic * words[i] +
                                 (w->same_topic - w->different_topic) * topic[c][i] +
                                 (w->same_word - w->same_topic) * word[c][i];
    for (int i = 0; i < 3; i++) k->normaliser[i] = words[i] + to_mask[i];
}

static void word_query(double probability, int in_document, int kept) {
    if (probability <= 0) return;
    double tau = setting[PER_DOCUMENT], v = setting[WORDS], all = setting[TOPICS];
    double noise = setting[MASK] * setting[RANDOM] / (all * v);
    double own = (1 - (1 - setting[KEEP]) * setting[MASK]) / (tau * v) + noise, mask = setting[MASK] * replaced();
    Kind *k = kind + kinds++;
    *k = (Kind){.probability = probability, .classes = 4};
    double count[4] = {1, v - 1, in_document ? (tau - 1) * v : tau * v, in_document ? (all - tau) * v : (all - tau - 1) * v};
    double key[4] = {in_document ? own : noise, in_document ? own : noise, own, noise};
    double target[4] = {0, 0, 0, 0};
    if (kept) target[0] = 1;
    else if (in_document) { target[0] = 1 / (tau * v); target[1] = (v - 1) / (tau * v); target[2] = (tau - 1) / tau; }
    else target[2] = 1;
    for (int c = 0; c < 4; c++) { k->count[c] = count[c]; k->target[c] = target[c]; }
    double words[3] = {count[2] * key[2] + count[3] * key[3], count[1] * key[1], count[0] * key[0]};
    double topic[4][3] = {{0, words[1], words[2]}, {0, words[1], words[2]}, {v * key[2], 0, 0}, {v * key[3], 0, 0}};
    double word[4][3] = {{0, 0, key[0]}, {0, key[1], 0}, {key[2], 0, 0}, {key[3], 0, 0}};
    numerators(k, mask, 0, words, topic, word);
}

static void mask_query(double probability) {
    if (probability <= 0) return;
    double tau = setting[PER_DOCUMENT], v = setting[WORDS], all = setting[TOPICS];
    double noise = setting[MASK] * setting[RANDOM] / (all * v);
    double own = (1 - (1 - setting[KEEP]) * setting[MASK]) / (tau * v) + noise;
    Kind *k = kind + kinds++;
    *k = (Kind){.probability = probability, .classes = 2, .count = {tau * v, (all - tau) * v}, .target = {1, 0}};
    double words[3] = {k->count[0] * own + k->count[1] * noise, 0, 0};
    double topic[4][3] = {{v * own}, {v * noise}}, word[4][3] = {{own}, {noise}};
    numerators(k, 0, setting[MASK] * replaced(), words, topic, word);
}

static void set_landscape(ClassMatrix value, int mask_queries) {
    double inside = setting[PER_DOCUMENT] / setting[TOPICS], keep = setting[KEEP], random = setting[RANDOM];
    double masks = mask_queries ? replaced() : 0, total = keep + random + masks;
    landscape_value = value;
    landscape_mask_queries = mask_queries;
    kinds = 0;
    word_query(keep / total, 1, 1);
    word_query(random * inside / total, 1, 0);
    word_query(random * (1 - inside) / total, 0, 0);
    mask_query(masks / total);
}

/* 1 - loss at (alpha, beta), and its loss's gradient and Hessian if wanted; -1e300 where no key gets any weight. */
static double explained(double alpha, double beta, double gradient[2], double hessian[3]) {
    double weights[3] = {1, alpha, beta}, total = 0;
    if (gradient) gradient[0] = gradient[1] = hessian[0] = hessian[1] = hessian[2] = 0;
    for (int i = 0; i < kinds; i++) {
        const Kind *k = kind + i;
        double z = k->normaliser[0] + k->normaliser[1] * alpha + k->normaliser[2] * beta, steep[2] = {0, 0};
        if (z <= 0) return -1e300;
        for (int c = 0; c < k->classes; c++) {
            double f = 0;
            for (int j = 0; j < 3; j++) f += k->numerator[c][j] * weights[j];
            f /= z;
            total += k->probability * (2 * f * k->target[c] - f * f * k->count[c]);
            if (!gradient) continue;
            double slope[2], residual = 2 * (k->count[c] * f - k->target[c]);
            for (int j = 0; j < 2; j++) {
                slope[j] = (k->numerator[c][j + 1] - f * k->normaliser[j + 1]) / z;
                gradient[j] += k->probability * residual * slope[j];
                steep[j] += residual * slope[j];
            }
            hessian[0] += k->probability * 2 * k->count[c] * slope[0] * slope[0];
            hessian[1] += k->probability * 2 * k->count[c] * slope[0] * slope[1];
            hessian[2] += k->probability * 2 * k->count[c] * slope[1] * slope[1];
        }
        if (!gradient) continue;
        /* The second derivative of N / Z is -(f_a Z_b + f_b Z_a) / Z. */
        hessian[0] -= k->probability * 2 * steep[0] * k->normaliser[1] / z;
        hessian[1] -= k->probability * (steep[0] * k->normaliser[2] + steep[1] * k->normaliser[1]) / z;
        hessian[2] -= k->probability * 2 * steep[1] * k->normaliser[2] / z;
    }
    return total;
}

/* The search runs over x >= 0 with (alpha, beta) = begin + x * direction, in one dimension or two. */
static int dimension;
static double begin[2], direction[2][2], highest;

static double at(const double x[2], double gradient[2], double hessian[3]) {
    double alpha = begin[0], beta = begin[1], g[2], h[3];
    for (int i = 0; i < dimension; i++) { alpha += x[i] * direction[i][0]; beta += x[i] * direction[i][1]; }
    if (!gradient) return explained(alpha, beta, 0, 0);
    double value = explained(alpha, beta, g, h);
    for (int i = 0; i < dimension; i++) gradient[i] = direction[i][0] * g[0] + direction[i][1] * g[1];
    for (int i = 0, n = 0; i < dimension; i++)
        for (int j = i; j < dimension; j++)
            hessian[n++] = direction[i][0] * (h[0] * direction[j][0] + h[1] * direction[j][1]) +
                           direction[i][1] * (h[1] * direction[j][0] + h[2] * direction[j][1]);
    return value;
}

static double slack(const double x[2], const double gradient[2]) {
    double most = 0;
    for (int i = 0; i < dimension; i++)
        most = larger(most, x[i] > 0 ? size_of(x[i] * gradient[i]) : larger(-gradient[i], 0));
    return most;
}

/* A Newton step in the coordinates that are not held at zero, downhill whatever the curvature's sign. */
static void newton(const double x[2], const double g[2], const double h[3], double step[2]) {
    int held[2] = {!(x[0] > 0 || g[0] < 0), dimension < 2 || !(x[1] > 0 || g[1] < 0)};
    double scale[2] = {x[0] > 0 ? x[0] : 1, dimension > 1 && x[1] > 0 ? x[1] : 1};
    step[0] = step[1] = 0;
    if (held[0] && held[1]) return;
    if (held[0] || held[1]) {
        int i = held[0];
        double curvature = scale[i] * scale[i] * (i ? h[2] : h[0]);
        step[i] = -scale[i] * scale[i] * g[i] / larger(size_of(curvature), 1e-300);
        return;
    }
    double values[2], vector[2];
    eigen(scale[0] * scale[0] * h[0], scale[0] * scale[1] * h[1], scale[1] * scale[1] * h[2], values, vector);
    double most = larger(larger(size_of(values[0]), size_of(values[1])), 1e-300);
    double a = scale[0] * g[0], b = scale[1] * g[1];
    double along = (a * vector[0] + b * vector[1]) / larger(size_of(values[0]), 1e-14 * most);
    double across = (-a * vector[1] + b * vector[0]) / larger(size_of(values[1]), 1e-14 * most);
    step[0] = -scale[0] * (along * vector[0] - across * vector[1]);
    step[1] = -scale[1] * (along * vector[1] + across * vector[0]);
}

static double polish(double x[2]) {
    double g[2] = {0, 0}, h[3] = {0, 0, 0}, value = at(x, g, h);
    for (int round = 0; round < 100 && slack(x, g) > 1e-16 * size_of(value); round++) {
        double step[2], shrink = 1;
        int better = 0;
        newton(x, g, h, step);
        for (int halving = 0; halving < 25 && !better; halving++, shrink /= 2) {
            double trial[2] = {0, 0}, tg[2] = {0, 0}, th[3] = {0, 0, 0};
            for (int i = 0; i < dimension; i++) trial[i] = smaller(larger(x[i] + shrink * step[i], 0), highest);
            double tried = at(trial, tg, th);
            int same = size_of(tried - value) <= 1e-14 * size_of(value);
            better = tried > value || (same && slack(trial, tg) < slack(x, g));
            if (!better) continue;
            value = tried;
            for (int i = 0; i < 2; i++) { x[i] = trial[i]; g[i] = tg[i]; }
            for (int i = 0; i < 3; i++) h[i] = th[i];
        }
        if (!better) break;
    }
    return value;
}

#define GRID 121
#define LINE 401
/* The best point: local peaks of a grid over many orders of magnitude, zero and uniform attention, each polished. */
static void search(double best[2]) {
    static double axis[LINE], values[GRID * GRID];
    int points = dimension == 1 ? LINE : GRID, rows = dimension == 1 ? 1 : GRID;
    axis[0] = 0;
    for (int i = 1; i < points; i++)
        axis[i] = 1e-3 * exponential(logarithm(highest / 1e-3) * (i - 1) / (points - 2));
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < points; c++) {
            double x[2] = {dimension == 1 ? axis[c] : axis[r], axis[c]};
            values[r * points + c] = at(x, 0, 0);
        }
    double uniform[2] = {1, 1}, most = polish(uniform), ceiling = 1e300;
    best[0] = uniform[0];
    best[1] = uniform[1];
    for (int candidate = 0; candidate < 6; candidate++) {
        int found = -1;
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < points; c++) {
                int n = r * points + c;
                double value = values[n];
                if (value >= ceiling || (found >= 0 && value <= values[found])) continue;
                if ((c && values[n - 1] > value) || (c + 1 < points && values[n + 1] > value)) continue;
                if (rows > 1 && ((r && values[n - points] > value) || (r + 1 < rows && values[n + points] > value))) continue;
                found = n;
            }
        if (found < 0) break;
        ceiling = values[found];
        double x[2] = {dimension == 1 ? axis[found % points] : axis[found / points], axis[found % points]};
        double value = polish(x);
        if (value > most) { most = value; best[0] = x[0]; best[1] = x[1]; }
    }
}

/* The minimiser (alpha, beta) for this W^V. */
static void minimise(ClassMatrix value, double best[2]) {
    double v = setting[WORDS], noise = larger(setting[MASK] * setting[RANDOM], 1e-6), x[2];
    int no_words = setting[KEEP] + setting[RANDOM] <= 0, blocks = value.same_word == value.same_topic;
    highest = 1e3 * v * (setting[PER_DOCUMENT] + setting[TOPICS] / noise);
    set_landscape(value, 1);
    if (blocks && v > 1 && !no_words && replaced() > 0) {
        /* [MASK] queries want beta = 1 if uniform attention makes their prediction the best there is (Lemma 1). */
        const Kind *mask = kind + kinds - 1;
        int uniform = 1;
        for (int c = 0; c < 2; c++) {
            double predicted = mask->numerator[c][0] + mask->numerator[c][1] + mask->numerator[c][2];
            predicted *= mask->count[c] / (mask->normaliser[0] + mask->normaliser[1] + mask->normaliser[2]);
            if (size_of(predicted - mask->target[c]) >= 1e-9) uniform = 0;
        }
        if (uniform) {
            set_landscape(value, 0);
            dimension = 1;
            begin[0] = begin[1] = 0;
            direction[0][0] = direction[0][1] = 1;
            search(x);
            set_landscape(value, 1);
            if (v * x[0] >= 1) {
                best[0] = (v * x[0] - 1) / (v - 1);
                best[1] = 1;
                return;
            }
        }
    }
    dimension = 2;
    begin[0] = begin[1] = 0;
    direction[0][0] = direction[1][1] = 1;
    direction[0][1] = direction[1][0] = 0;
    if (v == 1 || no_words) {
        dimension = 1;
        begin[0] = 1;
        direction[0][0] = 0;
        direction[0][1] = 1;
    } else if (blocks && replaced() == 0) {
        dimension = 1;
        direction[0][1] = 1;
    }
    search(x);
    best[0] = begin[0] + x[0] * direction[0][0] + (dimension > 1 ? x[1] * direction[1][0] : 0);
    best[1] = begin[1] + x[0] * direction[0][1] + (dimension > 1 ? x[1] * direction[1][1] : 0);
}

/* What the page shows of theory, a number each. */
enum {
    THEOREM_CLASSES, THEOREM_LOSS = 4, OPTIMUM_CLASSES, OPTIMUM_LOSS = 9, EIGEN_WITHIN, EIGEN_BETWEEN, EIGEN_MEAN,
    EIGEN_MASK, LANDSCAPE_ALPHA, LANDSCAPE_BETA, LANDSCAPE_LOSS, LANDSCAPE_UNIFORM, LAMBDA_1, LAMBDA_2, STAGE_1, STAGE_2, THEORIES
};
static double found[THEORIES];

static void put(double *to, const ClassMatrix *classes) {
    to[0] = classes->mask_column;
    to[1] = classes->same_word;
    to[2] = classes->same_topic;
    to[3] = classes->different_topic;
}

double *EXPORT(theory)(void) {
    Moments moments = class_moments();
    ClassMatrix theorem = theorem_2(), optimum = class_optimum(&moments, setting[L2]);
    double values[2], vector[2], hidden = (1 - setting[KEEP]) * setting[MASK], noise = setting[MASK] * setting[RANDOM];
    put(found + THEOREM_CLASSES, &theorem);
    put(found + OPTIMUM_CLASSES, &optimum);
    found[THEOREM_LOSS] = class_loss(&theorem, &moments);
    found[OPTIMUM_LOSS] = class_loss(&optimum, &moments);
    eigen(moments.second_mask, moments.second_coupling, moments.second_mean, values, vector);
    found[EIGEN_WITHIN] = moments.second_within;
    found[EIGEN_BETWEEN] = moments.second_between;
    found[EIGEN_MEAN] = values[0];
    found[EIGEN_MASK] = values[1];
    found[LAMBDA_1] = (1 - hidden + noise) * (1 + hidden) / (2 * (1 - hidden));
    found[LAMBDA_2] = noise > 0 ? 100 * ((1 - hidden) / noise + 1) : -1;
    /* How fast topics are learnt by W^V, and by attention once W^V is Theorem 2's: infinite documents of tau topics, squared
       loss (theory/dynamics.py). W^K and W^Q grow at the second over sqrt(d). */
    double topics = setting[TOPICS], tau = setting[PER_DOCUMENT], words = setting[WORDS];
    found[STAGE_1] = topics > 1 ? 2 * (1 - hidden) * (1 - hidden) * (topics - tau) / (tau * words * topics * (topics - 1)) : 0;
    found[STAGE_2] = topics > 1 ? 2 * setting[KEEP] * (tau - 1) / (tau * tau * words * words * (topics - 1)) *
                                      (1 + noise / (1 - hidden) * tau / topics) : 0;
    return found;
}

/* The landscape of Theorem 2's W^V, or of the class averages given, and its minimum. */
double *EXPORT(landscape)(int own, double mask_column, double same_word, double same_topic, double different_topic) {
    ClassMatrix value = {mask_column, same_word, same_topic, different_topic};
    if (!own) value = theorem_2();
    double best[2];
    minimise(value, best);
    found[LANDSCAPE_ALPHA] = best[0];
    found[LANDSCAPE_BETA] = best[1];
    found[LANDSCAPE_LOSS] = 1 - explained(best[0], best[1], 0, 0);
    found[LANDSCAPE_UNIFORM] = 1 - explained(1, 1, 0, 0);
    return found + LANDSCAPE_ALPHA;
}

/* The loss at one point of the landscape that was set last. */
double EXPORT(landscape_loss)(double alpha, double beta) { return 1 - explained(alpha, beta, 0, 0); }

#define MOST_POINTS 96
static double grid[MOST_POINTS * MOST_POINTS];

/* The loss at alpha = exp(low + (high - low) row / (points - 1)), and beta likewise by columns. */
double *EXPORT(landscape_grid)(int points, double low, double high) {
    for (int r = 0; r < points; r++)
        for (int c = 0; c < points; c++)
            grid[r * points + c] = 1 - explained(exponential(low + (high - low) * r / (points - 1)),
                                                 exponential(low + (high - low) * c / (points - 1)), 0, 0);
    return grid;
}

static double path[4];

/* W^V after gradient descent on the population's squared loss, from zero, under uniform attention, by class. */
double *EXPORT(descent)(double rate, double steps) {
    Moments moments = class_moments();
    ClassMatrix classes = descend(&moments, setting[L2], rate, steps);
    put(path, &classes);
    return path;
}
