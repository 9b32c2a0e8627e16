// One forward of a Llama-like model over few tokens as one call: embedding, layers, norm and head, over KV buffers that are
// allocated once. Harness code: harness/engine/native_forward.py, which has the same structures.
//
// Products read weights that are packed in blocks of 16 outputs, pairs of inputs side by side where they have two bytes. Every
// sum of a token has one order, whatever is fed beside it: its bits depend on no other token, row or number of threads.
// S is the type of weights, KV and logits: uint16_t holds a bfloat16, float a float32. Sums, norms and residuals are float32.

#include <omp.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <type_traits>
#include <vector>

#include "vectors.h"

namespace {

#ifdef __AVX512F__
constexpr int FEW = 6, MANY = 12, AHEAD = 24;  // rows by 4 and by 2 blocks that fit in 32 registers; lines fetched ahead
#else
constexpr int FEW = 1, MANY = 3, AHEAD = 24;
#endif

// sums[m][b] = the products of M rows of x with B blocks of outputs. Weights that lie `ahead` are fetched meanwhile.
template <int M, int B>
void tile(const uint16_t* w, size_t block, const uint16_t* x, size_t row, int inputs, float* sums, size_t ahead) {
  Floats a[M * B] = {};
  for (int k = 0; k < inputs / 2; k++) {
    Words both[B];
    for (int b = 0; b < B; b++) {
      const uint16_t* from = w + b * block + size_t(k) * 2 * LANES;
      both[b] = *reinterpret_cast<const Words*>(from);
      __builtin_prefetch(from + ahead);
    }
    for (int m = 0; m < M; m++) {
      uint32_t pair;
      memcpy(&pair, x + m * row + 2 * k, 4);
      const Words here = Words{} + pair;
      for (int b = 0; b < B; b++) {
#ifdef __AVX512BF16__
        a[m * B + b] = (Floats)_mm512_dpbf16_ps((__m512)a[m * B + b], (__m512bh)both[b], (__m512bh)here);
#else
        a[m * B + b] += (Floats)(both[b] << 16) * (Floats)(here << 16);
        a[m * B + b] += (Floats)(both[b] & 0xffff0000u) * (Floats)(here & 0xffff0000u);
#endif
      }
    }
  }
  for (int i = 0; i < M * B; i++) store(sums + i * LANES, a[i]);
}
template <int M, int B>
void tile(const float* w, size_t block, const float* x, size_t row, int inputs, float* sums, size_t ahead) {
  Floats a[M * B] = {};
  for (int k = 0; k < inputs; k++) {
    Floats one[B];
    for (int b = 0; b < B; b++) {
      const float* from = w + b * block + size_t(k) * LANES;
      one[b] = *reinterpret_cast<const Floats*>(from);
      __builtin_prefetch(from + ahead);
    }
    for (int m = 0; m < M; m++) {
      const Floats here = x[m * row + k] - Floats{};  // a broadcast; 0 + x would be an addition
      for (int b = 0; b < B; b++) a[m * B + b] += one[b] * here;
    }
  }
  for (int i = 0; i < M * B; i++) store(sums + i * LANES, a[i]);
}

template <typename S>
using Tile = void (*)(const S*, size_t, const S*, size_t, int, float*, size_t);
template <typename S, int M>
Tile<S> tile_of(int rows, int blocks) {
  if constexpr (M == 0) {
    return nullptr;
  } else {
    if (rows != M) return tile_of<S, M - 1>(rows, blocks);
    if (blocks == 1) return tile<M, 1>;
    if (blocks == 2) return tile<M, 2>;
    if constexpr (M <= FEW) return tile<M, 4>;
    return nullptr;
  }
}

// A barrier that spins, and yields where its threads have no core each.
class Meeting {
 public:
  explicit Meeting(int threads) : threads_(threads) {}
  void wait() {
    if (threads_ == 1) return;
    const int round = round_.load(std::memory_order_relaxed);
    if (came_.fetch_add(1, std::memory_order_acq_rel) == threads_ - 1) {
      came_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; spins++) {
      if (spins > 4000) std::this_thread::yield();
#ifdef __x86_64__
      else _mm_pause();
#endif
    }
  }

 private:
  alignas(64) std::atomic<int> came_{0};
  alignas(64) std::atomic<int> round_{0};
  const int threads_;
};

}  // namespace

extern "C" {

// The low-rank term of one block of outputs: `up` (rank, 16), from `first` on among the hidden values of its product.
struct Up {
  const void* up;
  int64_t rank, first;
};
// Weights (blocks, inputs, 16), packed; `bias` (blocks, 16) or null. `down` is the packed matrix of all low-rank terms.
struct Product {
  const void* weights;
  const float* bias;
  int64_t blocks, inputs;
  const void* down;
  int64_t down_blocks;
  const Up* ups;
};
struct Layer {
  Product qkv, out, gate_up, down;
  const float *before_attention, *before_inner, *query_norm, *key_norm;
};
struct Model {
  const Layer* layers;
  int64_t count, hidden, inner, heads, groups, width, vocab;
  float eps, scale;
  const float *cosines, *sines, *last_norm;  // (positions, width / 2) each
  Product head;
  const void* embeddings;
  int64_t mask_id, mask_row;  // the row that an adapted mask reads in place of its own; mask_id < 0: none
};
struct Call {
  int64_t rows, tokens, wanted, slots, threads;
  const int64_t *ids, *positions, *lengths, *which;  // (rows, tokens) twice, (rows), (wanted)
  const uint8_t *inside, *fed, *adapted;             // (tokens, tokens); (rows, tokens) or null; (tokens) or null
  void* const* keys;                                 // (rows, groups, slots, width) of every layer
  void* const* values;
  void* logits;  // (rows, wanted, vocab)
};
}

namespace {

struct Shared {
  std::vector<float> residual, qkv, low;
  std::vector<uint8_t> plain, attended, inner;
  std::vector<int64_t> slot, seen;  // of every token, and where its list of own slots begins
  std::vector<int32_t> own;
};

template <typename S>
class Forward {
 public:
  Forward(const Model& model, const Call& call, Shared& shared, Meeting& meeting, int part)
      : model_(model), call_(call), shared_(shared), meeting_(meeting), part_(part), rows_(call.rows * call.tokens) {}

  void run() {
    const int64_t hidden = model_.hidden;
    normed_.resize(size_t(rows_) * hidden);
    if (part_ == 0) embed();
    meeting_.wait();
    for (int64_t number = 0; number < model_.count; number++) layer(model_.layers[number], number);
    head();
  }

 private:
  using Rows = std::vector<S>;

  float* residual(int64_t row) { return shared_.residual.data() + row * model_.hidden; }

  void embed() {
    const S* table = static_cast<const S*>(model_.embeddings);
    for (int64_t row = 0; row < rows_; row++) {
      int64_t id = call_.ids[row];
      if (id == model_.mask_id && adapted(row)) id = model_.mask_row;
      for (int64_t i = 0; i < model_.hidden; i++) residual(row)[i] = widened(table[id * model_.hidden + i]);
    }
  }

  bool adapted(int64_t row) const { return call_.adapted && call_.adapted[row % call_.tokens]; }

  void norm(const float* x, const float* weight, int64_t size, S* to) const {
    Floats squares = {};
    for (int64_t i = 0; i < size; i += LANES) squares += load(x + i) * load(x + i);
    const float by = 1.0f / std::sqrt(sum_of(squares) / size + model_.eps);
    for (int64_t i = 0; i < size; i += LANES) store(to + i, load(x + i) * by * load(weight + i));
  }

  // Every thread for itself: that is less work than to wait for the others.
  const S* normed(const float* weight) {
    for (int64_t row = 0; row < rows_; row++) norm(residual(row), weight, model_.hidden, normed_.data() + row * model_.hidden);
    return normed_.data();
  }

  // This thread's share of the blocks, in runs of `unit`; done(row, block, sums) gets the 16 outputs of a row and a block, two
  // blocks side by side where the unit is two.
  template <typename Done>
  void product(const S* weights, int64_t blocks, int64_t inputs, const S* x, int64_t rows, int64_t unit, const Done& done) {
    const int64_t units = blocks / unit, begin = units * part_ / call_.threads * unit;
    const int64_t end = units * (part_ + 1) / call_.threads * unit;
    const int64_t turns = (rows + MANY - 1) / MANY, most = turns ? (rows + turns - 1) / turns : 0;
    const int64_t widest = most <= FEW ? 4 : 2;
    const size_t block = size_t(inputs) * LANES;
    alignas(64) float sums[std::max(MANY * 2, FEW * 4) * LANES];
    for (int64_t j = begin, step; j < end; j += step) {
      step = end - j >= widest ? widest : (end - j >= 2 ? 2 : 1);
      for (int64_t turn = 0; turn < turns; turn++) {
        const int64_t first = rows * turn / turns, behind = rows * (turn + 1) / turns;
        const size_t ahead = turn ? step * block : AHEAD * 64 / sizeof(S);  // these blocks are here: the next ones
        tile_of<S, MANY>(behind - first, step)(weights + j * block, block, x + first * inputs, inputs, inputs, sums, ahead);
        for (int64_t row = first; row < behind; row++)
          for (int64_t b = 0; b < step; b += unit) done(row, j + b, sums + ((row - first) * step + b) * LANES);
      }
    }
  }

  // The same with bias and the low-rank terms of the adapted rows.
  template <typename Done>
  void apply(const Product& of, const S* x, int64_t unit, const Done& done) {
    const int64_t ranks = of.down_blocks * LANES;
    const bool low = call_.adapted && of.down;
    if (low) {
      product(static_cast<const S*>(of.down), of.down_blocks, of.inputs, x, rows_, 1, [&](int64_t row, int64_t j, float* sums) {
        store(shared_.low.data() + row * ranks + j * LANES, load(sums));
      });
      meeting_.wait();
    }
    product(static_cast<const S*>(of.weights), of.blocks, of.inputs, x, rows_, unit, [&](int64_t row, int64_t j, float* sums) {
      for (int64_t b = 0; b < unit; b++) {
        Floats sum = load(sums + b * LANES);
        if (of.bias) sum += load(of.bias + (j + b) * LANES);
        if (low && adapted(row)) sum += low_rank(of.ups[j + b], shared_.low.data() + row * ranks);
        store(sums + b * LANES, sum);
      }
      done(row, j, sums);
    });
  }

  Floats low_rank(const Up& of, const float* hidden) const {
    Floats sum = {};
    const S* up = static_cast<const S*>(of.up);
    for (int64_t r = 0; r < of.rank; r++) sum += load(up + r * LANES) * hidden[of.first + r];
    return sum;
  }

  void add(int64_t row, int64_t j, const float* sums) {
    float* to = residual(row) + j * LANES;
    store(to, load(to) + load(sums));
  }

  void layer(const Layer& of, int64_t number) {
    const int64_t heads = model_.heads, groups = model_.groups, width = model_.width, all = (heads + 2 * groups) * width;
    float* const qkv = shared_.qkv.data();
    apply(of.qkv, normed(of.before_attention), 1,
          [&](int64_t row, int64_t j, const float* sums) { store(qkv + row * all + j * LANES, load(sums)); });
    meeting_.wait();
    for (int64_t row = part_; row < rows_; row += call_.threads) place(of, number, row, qkv + row * all);
    meeting_.wait();
    S* const attended = reinterpret_cast<S*>(shared_.attended.data());
    for (int64_t one = part_; one < rows_ * heads; one += call_.threads)
      attend<1>(number, one / heads, one % heads, qkv + one / heads * all, attended + one * width);
    meeting_.wait();
    apply(of.out, attended, 1, [&](int64_t row, int64_t j, const float* sums) { add(row, j, sums); });
    meeting_.wait();
    S* const inner = reinterpret_cast<S*>(shared_.inner.data());
    apply(of.gate_up, normed(of.before_inner), 2, [&](int64_t row, int64_t j, const float* sums) {
      const Floats gate = load(sums), up = load(sums + LANES);
      store(inner + row * model_.inner + j / 2 * LANES, gate / (exponential(-gate) + 1.0f) * up);
    });
    meeting_.wait();
    apply(of.down, inner, 1, [&](int64_t row, int64_t j, const float* sums) { add(row, j, sums); });
    meeting_.wait();
  }

  // Rotate a token's queries in place; put its keys and values into its slot.
  void place(const Layer& of, int64_t number, int64_t row, float* qkv) {
    const int64_t width = model_.width, half = width / 2, heads = model_.heads, groups = model_.groups;
    const int64_t position = std::min(call_.positions[row], call_.slots - 1);  // padding may lie behind the last slot
    const float* const cosines = model_.cosines + position * half;
    const float* const sines = model_.sines + position * half;
    for (int64_t head = 0; head < heads + groups; head++) {
      float* const x = qkv + head * width;
      const float* const weight = head < heads ? of.query_norm : of.key_norm;
      if (weight) {
        Floats squares = {};
        for (int64_t i = 0; i < width; i += LANES) squares += load(x + i) * load(x + i);
        const float by = 1.0f / std::sqrt(sum_of(squares) / width + model_.eps);
        for (int64_t i = 0; i < width; i += LANES) store(x + i, load(x + i) * by * load(weight + i));
      }
      for (int64_t i = 0; i < half; i += LANES) {
        const Floats a = load(x + i), b = load(x + half + i), c = load(cosines + i), s = load(sines + i);
        store(x + i, a * c - b * s);
        store(x + half + i, b * c + a * s);
      }
    }
    const int64_t slot = shared_.slot[row];
    if (slot < 0) return;
    for (int64_t group = 0; group < groups; group++) {
      const int64_t at = ((row / call_.tokens * groups + group) * call_.slots + slot) * width;
      S* const key = static_cast<S*>(call_.keys[number]) + at;
      S* const value = static_cast<S*>(call_.values[number]) + at;
      for (int64_t i = 0; i < width; i += LANES) {
        store(key + i, load(qkv + (heads + group) * width + i));
        store(value + i, load(qkv + (heads + groups + group) * width + i));
      }
    }
  }

  // A query in registers, N vectors of it, times a key; and a value, N vectors of it, times its share.
  template <int N>
  static Floats dot(const Floats* query, const float* key) {
    Floats sum = {};
    for (int i = 0; i < N; i++) sum += query[i] * load(key + i * LANES);
    return sum;
  }
  template <int N>
  static Floats dot(const Words* query, const uint16_t* key) {
    Floats sum = {};
    for (int i = 0; i < N; i++) {
      const Words b = *reinterpret_cast<const AnyWords*>(key + i * 2 * LANES);
#ifdef __AVX512BF16__
      sum = (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)query[i], (__m512bh)b);
#else
      sum += (Floats)(query[i] << 16) * (Floats)(b << 16);
      sum += (Floats)(query[i] & 0xffff0000u) * (Floats)(b & 0xffff0000u);
#endif
    }
    return sum;
  }
  template <int N>
  static void add_times(const float* value, float by, Floats* to) {
    for (int i = 0; i < N; i++) to[i] += load(value + i * LANES) * by;
  }
  template <int N>
  static void add_times(const uint16_t* value, float by, Floats* to) {  // even ones, then odd ones
    for (int i = 0; i < N; i++) {
      const Words both = *reinterpret_cast<const AnyWords*>(value + i * 2 * LANES);
      to[2 * i] += (Floats)(both << 16) * by;
      to[2 * i + 1] += (Floats)(both & 0xffff0000u) * by;
    }
  }

  // The sums of 16 vectors as one.
  static Floats sums_of(Floats* of) {
    constexpr Whole even = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
    for (int left = LANES / 2; left; left /= 2)
      for (int i = 0; i < left; i++)
        of[i] = __builtin_shuffle(of[2 * i], of[2 * i + 1], even) + __builtin_shuffle(of[2 * i], of[2 * i + 1], even + 1);
    return of[0];
  }

  static void put(const Floats* from, float by, int64_t width, float* to) {
    for (int64_t i = 0; i < width / LANES; i++) store(to + i * LANES, from[i] * by);
  }
  static void put(const Floats* from, float by, int64_t width, uint16_t* to) {
    for (int64_t i = 0; i < width / LANES; i += 2)
      for (int lane = 0; lane < LANES; lane++) {
        store_one(to + i * LANES + 2 * lane, from[i][lane] * by);
        store_one(to + i * LANES + 2 * lane + 1, from[i + 1][lane] * by);
      }
  }

  // One head of one token over the slots that it sees, in their order. P: how often 32 goes into the width of a head.
  template <int P>
  void attend(int64_t number, int64_t row, int64_t head, const float* qkv, S* to) {
    const int64_t width = model_.width, batch = row / call_.tokens, group = head / (model_.heads / model_.groups);
    if constexpr (P < MOST_WIDTH / 32)
      if (width > P * 32) return attend<P + 1>(number, row, head, qkv, to);
    constexpr int N = sizeof(S) == 2 ? P : 2 * P;
    using Vector = std::conditional_t<sizeof(S) == 2, Words, Floats>;
    const int64_t before = call_.lengths[batch], at = (batch * model_.groups + group) * call_.slots * width;
    const S* const keys = static_cast<const S*>(call_.keys[number]) + at;
    const S* const values = static_cast<const S*>(call_.values[number]) + at;
    const int32_t* const own = shared_.own.data() + shared_.seen[row];
    const int64_t seen = before + shared_.seen[row + 1] - shared_.seen[row];
    const auto slot = [&](int64_t t) { return (t < before ? t : own[t - before]) * (P * 32); };
    scores_.resize((seen + LANES) / LANES * LANES);
    alignas(64) S rounded[P * 32];
    for (int64_t i = 0; i < width; i += LANES) store(rounded + i, load(qkv + head * width + i));
    Vector query[N];
    memcpy(query, rounded, sizeof(rounded));
    Floats highest = Floats{} - INFINITY;
    for (int64_t t = 0; t < seen; t += LANES) {
      Floats sums[LANES] = {};
      const int here = int(std::min<int64_t>(LANES, seen - t));
      for (int i = 0; i < here; i++) sums[i] = dot<N>(query, keys + slot(t + i));
      Floats scores = sums_of(sums) * model_.scale;
      for (int i = here; i < LANES; i++) scores[i] = -INFINITY;
      highest = scores > highest ? scores : highest;
      store(scores_.data() + t, scores);
    }
    const float most = largest(highest);
    Floats total = {}, sums[2 * P] = {};
    for (int64_t t = 0; t < seen; t += LANES) {
      Floats shares = exponential(load(scores_.data() + t) - most);
      for (int i = int(seen - t); i < LANES; i++) shares[i] = 0;
      total += shares;
      alignas(64) float each[LANES];
      store(each, shares);
      const int here = int(std::min<int64_t>(LANES, seen - t));
      for (int i = 0; i < here; i++) add_times<N>(values + slot(t + i), each[i], sums);
    }
    put(sums, 1.0f / sum_of(total), width, to);
  }

  void head() {
    const int64_t wanted = call_.wanted, rows = call_.rows * wanted, hidden = model_.hidden, vocab = model_.vocab;
    for (int64_t row = 0; row < rows; row++)
      norm(residual(row / wanted * call_.tokens + call_.which[row % wanted]), model_.last_norm, hidden, normed_.data() + row * hidden);
    S* const logits = static_cast<S*>(call_.logits);
    const Product& of = model_.head;
    product(static_cast<const S*>(of.weights), of.blocks, hidden, normed_.data(), rows, 1,
            [&](int64_t row, int64_t j, const float* sums) {
              S* const to = logits + row * vocab + j * LANES;
              if ((j + 1) * LANES <= vocab)
                store(to, load(sums));
              else
                for (int64_t i = 0; i < vocab - j * LANES; i++) store_one(to + i, sums[i]);
            });
  }

  static constexpr int MOST_WIDTH = 256;
  const Model& model_;
  const Call& call_;
  Shared& shared_;
  Meeting& meeting_;
  const int part_;
  const int64_t rows_;
  Rows normed_;
  std::vector<float> scores_;
};

// Which slot every fed token gets, and which slots of its own call it sees.
void lay_out(const Call& call, Shared& shared) {
  shared.slot.clear();
  shared.own.clear();
  shared.seen.assign(1, 0);
  for (int64_t row = 0; row < call.rows; row++) {
    const uint8_t* const fed = call.fed ? call.fed + row * call.tokens : nullptr;
    int64_t next = call.lengths[row];
    for (int64_t i = 0; i < call.tokens; i++) shared.slot.push_back(!fed || fed[i] ? next++ : -1);
    const int64_t* const slots = shared.slot.data() + row * call.tokens;
    for (int64_t i = 0; i < call.tokens; i++) {
      for (int64_t j = 0; j < call.tokens; j++)
        if (slots[j] >= 0 && call.inside[i * call.tokens + j]) shared.own.push_back(int32_t(slots[j]));
      shared.seen.push_back(int64_t(shared.own.size()));
    }
  }
}

template <typename S>
void forward(const Model& model, const Call& call) {
  static thread_local Shared shared;
  const size_t rows = call.rows * call.tokens;
  int64_t most = 0;
  for (int64_t i = 0; i < model.count; i++)
    for (const Product* one : {&model.layers[i].qkv, &model.layers[i].out, &model.layers[i].gate_up, &model.layers[i].down})
      most = std::max(most, one->down_blocks * LANES);
  shared.residual.resize(rows * model.hidden);
  shared.qkv.resize(rows * (model.heads + 2 * model.groups) * model.width);
  shared.low.resize(rows * most);
  shared.attended.resize(rows * model.heads * model.width * sizeof(S));
  shared.inner.resize(rows * model.inner * sizeof(S));
  lay_out(call, shared);
  Meeting meeting(int(call.threads));
  Shared& held = shared;
#pragma omp parallel num_threads(int(call.threads))
  {
    Forward<S>(model, call, held, meeting, omp_get_thread_num()).run();
  }
}

template <typename S>
void pack(const S* from, int64_t outputs, int64_t inputs, S* to) {
  constexpr int64_t pair = sizeof(S) == 2 ? 2 : 1;
#pragma omp parallel for
  for (int64_t j = 0; j < (outputs + LANES - 1) / LANES; j++)
    for (int64_t k = 0; k < inputs; k++)
      for (int64_t i = 0; i < LANES; i++)
        to[(j * inputs + k / pair * pair) * LANES + i * pair + k % pair] =
            j * LANES + i < outputs ? from[(j * LANES + i) * inputs + k] : S(0);
}

}  // namespace

extern "C" {
void sbd_forward_bfloat16(const Model* model, const Call* call) { forward<uint16_t>(*model, *call); }
void sbd_forward_float32(const Model* model, const Call* call) { forward<float>(*model, *call); }
void sbd_pack_bfloat16(const uint16_t* from, int64_t outputs, int64_t inputs, uint16_t* to) { pack(from, outputs, inputs, to); }
void sbd_pack_float32(const float* from, int64_t outputs, int64_t inputs, float* to) { pack(from, outputs, inputs, to); }
}
