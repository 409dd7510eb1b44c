// Guided scenes: a setting, how long it runs, and what it shows, which a test reads from the numbers.

const SCENES = [
  {
    id: "figure2", title: "Figure 2", until: 1500, settings: {},
    caption: "Attention is uniform and W^V alone is trained. Within a few hundred steps topics stand out as blocks, and W^V comes to rest at the optimum for documents of this length, not at Theorem 2's: the diagonal is twice as high as the block.",
  },
  {
    id: "stages", title: "Two stages", until: 1500,
    settings: { parts: "all", learning_rate: 0.003, adam_epsilon: 1e-6, l2: 0 },
    caption: "All three matrices are trained from near zero. W^V comes first: when attention leaves uniform, it already has more than two thirds of what uniform attention can gain. Then attention turns to the query's own topic.",
  },
  {
    id: "predicted", title: "Take-off, predicted", until: 3200,
    settings: { parts: "all", topics: 6, words: 4, sampler: "topics", per_document: 3, mask: 0.2, keep: 0.3, random: 0.2, optimizer: "sgd", learning_rate: 5, scale: 0.01, l2: 0 },
    caption: "A small vocabulary and plain SGD. Long before attention moves, the linear equations that it obeys near its start say when it will: the dashed line in the pictures of attention and norms. Wait for it.",
  },
  {
    id: "never", title: "p_c = 0: attention never learns topics", until: 1500,
    settings: { parts: "theorem", sampler: "topics", keep: 0, l2: 0, learning_rate: 0.003 },
    caption: "No masked word is ever kept, so the word at a query says nothing about the word to predict, and attention has no reason to prefer its topic: same and different topic stay alike. Raise p_c to 0.1 and watch them part.",
  },
  {
    id: "sgd", title: "SGD passes Theorem 2's block, the diagonal comes later", until: 3000,
    settings: { optimizer: "sgd", learning_rate: 3, scale: 0.0001, l2: 0 },
    caption: "Plain SGD learns each direction at its own pace: topics within a hundred steps, words within a topic fifty times more slowly. At step 100 W^V is near Theorem 2's flat blocks; only thousands of steps later the diagonal of the finite-document optimum stands out.",
  },
  {
    id: "overlap", title: "Overlapping topics", until: 1500,
    settings: { overlap: 0.5 },
    caption: "Half of all words are drawn from the whole vocabulary, whatever the topic, which breaks the theory's assumption of disjoint topics. Blocks form all the same, at the optimum computed for topics that overlap, but they explain much less: the loss is nearer to 1.",
  },
];
