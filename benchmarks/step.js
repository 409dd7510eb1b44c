// The playground's step in plain JavaScript with typed arrays, as one would write it by hand: for comparison alone.

const T = 10, W = 10, V = T * W + 1, BATCH = 40, PM = 0.15, PC = 0.1, PR = 0.1;
let state = 12345;
function uniform() {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) / 4294967296;
}
const below = (count) => Math.floor(uniform() * count);
const matrices = () => Array.from({ length: 3 }, () => new Float32Array(V * V));
const [value, key, query] = matrices().map((matrix) => matrix.map(() => 0.001 * (uniform() - 0.5)));
const gradients = matrices(), means = matrices(), squares = matrices(), scores = new Float32Array(V * V), slopes = new Float32Array(V * V);
let updates = 0;

function step(uniformAttention) {
  const scale = 1 / Math.sqrt(V), moving = !uniformAttention;
  for (const gradient of gradients) gradient.fill(0);
  if (moving) {
    scores.fill(0);
    slopes.fill(0);
    for (let a = 0; a < V; a++) for (let d = 0; d < V; d++) {
      const q = query[d * V + a] * scale;
      for (let b = 0; b < V; b++) scores[a * V + b] += q * key[d * V + b];
    }
  }
  let loss = 0;
  const topic = new Int32Array(150), counts = new Float32Array(V), attention = new Float32Array(V), x = new Float32Array(V), pull = new Float32Array(V);
  for (let document = 0; document < BATCH; document++) {
    const length = 100 + below(51), rows = new Map();
    counts.fill(0);
    let masked = 0;
    for (let i = 0; i < length; i++) {
      topic[i] = uniform() < 1 / (1 + i) ? below(T) : topic[below(i)];
      const word = 1 + topic[i] * W + below(W);
      let token = word;
      if (uniform() < PM) {
        masked++;
        const fate = uniform();
        if (fate >= PC) token = fate < PC + PR ? 1 + below(T * W) : 0;
        const row = uniformAttention ? 0 : token;
        if (!rows.has(row)) rows.set(row, { count: 0, target: new Float32Array(V) });
        rows.get(row).count++;
        rows.get(row).target[word]++;
      }
      counts[token]++;
    }
    const share = 1 / (Math.max(masked, 1) * BATCH);
    for (const [a, { count, target }] of rows) {
      let total = 0;
      for (let b = 0; b < V; b++) total += attention[b] = counts[b] && counts[b] * (moving ? Math.exp(scores[a * V + b]) : 1);
      x.fill(0);
      for (let b = 0; b < V; b++) {
        if (!attention[b]) continue;
        const weight = (attention[b] /= total);
        for (let i = 0; i < V; i++) x[i] += weight * value[b * V + i];
      }
      for (let i = 0; i < V; i++) {
        loss += share * (count * x[i] * x[i] - 2 * target[i] * x[i]);
        x[i] = 2 * share * (count * x[i] - target[i]);
      }
      let mean = 0;
      for (let b = 0; b < V; b++) {
        if (!attention[b]) continue;
        const weight = attention[b];
        let dot = 0;
        for (let i = 0; i < V; i++) {
          gradients[0][b * V + i] += weight * x[i];
          dot += x[i] * value[b * V + i];
        }
        mean += weight * (pull[b] = dot);
      }
      if (moving) for (let b = 0; b < V; b++) if (attention[b]) slopes[a * V + b] += attention[b] * (pull[b] - mean);
    }
  }
  if (moving)
    for (let d = 0; d < V; d++) for (let a = 0; a < V; a++) {
      const q = query[d * V + a] * scale;
      let dot = 0;
      for (let b = 0; b < V; b++) {
        gradients[1][d * V + b] += q * slopes[a * V + b];
        dot += key[d * V + b] * slopes[a * V + b];
      }
      gradients[2][d * V + a] = dot * scale;
    }
  updates++;
  const first = 1 - 0.9 ** updates, second = Math.sqrt(1 - 0.999 ** updates);
  [value, key, query].slice(0, moving ? 3 : 1).forEach((matrix, number) => {
    const gradient = gradients[number], mean = means[number], square = squares[number];
    for (let j = 0; j < V * V; j++) {
      mean[j] += 0.1 * (gradient[j] - mean[j]);
      square[j] += 0.001 * (gradient[j] * gradient[j] - square[j]);
      matrix[j] -= ((0.01 / first) * mean[j]) / (Math.sqrt(square[j]) / second + 1e-8);
    }
  });
  return loss;
}

// How many steps are done in so many milliseconds.
function done(uniformAttention, milliseconds) {
  const began = performance.now();
  let steps = 0;
  while (performance.now() - began < milliseconds) {
    step(uniformAttention);
    steps++;
  }
  return steps;
}
