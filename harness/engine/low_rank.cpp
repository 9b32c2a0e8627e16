// The low-rank term of a few rows, out[:, start:end] += up down x, in bfloat16 with sums in float32. Torch's own products take
// three times as long at this size: each is two calls, two conversions and a sum. Harness code: harness/engine/low_rank.py.
//
// A load takes pairs of neighbours, one in the high and one in the low half of 32 bits (little endian). Shifted or masked, each
// half is a float32 by itself, so nothing is moved between lanes. x (B, Q, in), out (B, Q, wide), down (rank, in),
// up (wide / COLUMNS, rank, COLUMNS); x and out are contiguous along their last axis.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <vector>

namespace {

constexpr int PAIRS = 16;  // a vector of 512 bits; a compiler for narrower ones splits it
constexpr int ROWS = 6, RANKS = 4, VECTORS = 2;  // what fits in 32 registers
constexpr int COLUMNS = VECTORS * 2 * PAIRS;

typedef float Floats __attribute__((vector_size(PAIRS * 4)));
typedef uint32_t Words __attribute__((vector_size(PAIRS * 4)));
typedef uint32_t Stored __attribute__((vector_size(PAIRS * 4), aligned(2), may_alias));

struct Pairs {
  Floats even, odd;
};

inline Pairs load(const uint16_t* from) {
  const Words both = *reinterpret_cast<const Stored*>(from);
  return {(Floats)(both << 16), (Floats)(both & 0xffff0000u)};
}

inline Words rounded(Floats value) {  // to bfloat16, to nearest, ties to even
  const Words bits = (Words)value;
  return bits + 0x7fff + ((bits >> 16) & 1);
}

inline void add(uint16_t* to, Floats even, Floats odd) {
  const Pairs old = load(to);
  *reinterpret_cast<Stored*>(to) = (rounded(old.even + even) >> 16) | (rounded(old.odd + odd) & 0xffff0000u);
}

// hidden = down x for R rows and RANKS of the rank.
template <int R>
inline void to_hidden(const uint16_t* x, int64_t x_row, const uint16_t* down, int64_t in, float* hidden, int64_t rank) {
  Floats sums[R][RANKS] = {};
  for (int64_t i = 0; i < in; i += 2 * PAIRS) {
    Pairs a[RANKS];
    for (int j = 0; j < RANKS; j++) a[j] = load(down + j * in + i);
    for (int r = 0; r < R; r++) {
      const Pairs b = load(x + r * x_row + i);
      for (int j = 0; j < RANKS; j++) {
        sums[r][j] += a[j].even * b.even;
        sums[r][j] += a[j].odd * b.odd;
      }
    }
  }
  for (int r = 0; r < R; r++)
    for (int j = 0; j < RANKS; j++) {
      float sum = 0;
      for (int lane = 0; lane < PAIRS; lane++) sum += sums[r][j][lane];
      hidden[r * rank + j] = sum;
    }
}

// out += up hidden for R rows and COLUMNS columns.
template <int R>
inline void to_out(uint16_t* out, int64_t out_row, const uint16_t* up, const float* hidden, int64_t rank) {
  Floats even[R][VECTORS] = {}, odd[R][VECTORS] = {};
  for (int64_t j = 0; j < rank; j++) {
    Pairs a[VECTORS];
    for (int v = 0; v < VECTORS; v++) a[v] = load(up + j * COLUMNS + v * 2 * PAIRS);
    for (int r = 0; r < R; r++) {
      const float h = hidden[r * rank + j];
      for (int v = 0; v < VECTORS; v++) {
        even[r][v] += a[v].even * h;
        odd[r][v] += a[v].odd * h;
      }
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < VECTORS; v++) add(out + r * out_row + v * 2 * PAIRS, even[r][v], odd[r][v]);
}

// Call work<ROWS>(first) and work<1>(first) until `rows` rows are done.
template <typename Many, typename One>
inline void in_groups(int64_t rows, const Many& many, const One& one) {
  int64_t r = 0;
  for (; r + ROWS <= rows; r += ROWS) many(r);
  for (; r < rows; r++) one(r);
}

void add_packed(
    at::Tensor& out, const at::Tensor& x, const at::Tensor& down, const at::Tensor& up, int64_t start, int64_t end) {
  const int64_t rank = down.size(0), in = down.size(1), wide = out.size(2), rows = end - start;
  TORCH_CHECK(x.stride(2) == 1 && out.stride(2) == 1 && rank % RANKS == 0 && in % (2 * PAIRS) == 0 && wide % COLUMNS == 0);
  const auto* const a = reinterpret_cast<const uint16_t*>(down.const_data_ptr());
  const auto* const b = reinterpret_cast<const uint16_t*>(up.const_data_ptr());
  const int64_t x_row = x.stride(1), out_row = out.stride(1);
  std::vector<float> between(rows * rank);
  float* const hidden = between.data();
  for (int64_t n = 0; n < out.size(0); n++) {
    const auto* const xs = reinterpret_cast<const uint16_t*>(x.const_data_ptr()) + n * x.stride(0) + start * x_row;
    auto* const outs = reinterpret_cast<uint16_t*>(out.mutable_data_ptr()) + n * out.stride(0) + start * out_row;
    at::parallel_for(0, rank / RANKS, 1, [&](int64_t from, int64_t to) {
      for (int64_t j = from * RANKS; j < to * RANKS; j += RANKS)
        in_groups(
            rows, [&](int64_t r) { to_hidden<ROWS>(xs + r * x_row, x_row, a + j * in, in, hidden + r * rank + j, rank); },
            [&](int64_t r) { to_hidden<1>(xs + r * x_row, x_row, a + j * in, in, hidden + r * rank + j, rank); });
    });
    at::parallel_for(0, wide / COLUMNS, 1, [&](int64_t from, int64_t to) {
      for (int64_t c = from * COLUMNS; c < to * COLUMNS; c += COLUMNS)
        in_groups(
            rows, [&](int64_t r) { to_out<ROWS>(outs + r * out_row + c, out_row, b + c * rank, hidden + r * rank, rank); },
            [&](int64_t r) { to_out<1>(outs + r * out_row + c, out_row, b + c * rank, hidden + r * rank, rank); });
    });
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(sbd, CPU, library) { library.impl("add_packed", add_packed); }
