// The sampler on a CPU: one walk over the vocabulary for the likeliest token, a second one for what its distribution says.
// S is the sum of exp(x - m) over a position's logits x with maximum m, T that of (x - m) exp(x - m); the entropy is
// log S - T / S, where no term is negative. Harness code: harness/kernels/walk.py.

#include "vectors.h"

namespace {

constexpr float LEAST_LOG_P = -1e4f;

template <typename S>
int64_t likeliest(const S* logits, int64_t vocab, float& highest) {
  Floats best = Floats{} - INFINITY;
  Whole ids = {}, at = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, bad = {};
  for (int64_t i = 0; i < vocab; i += LANES) {
    const Floats x = read(logits + i, vocab - i);
    const Whole more = x > best;
    bad |= ~(x < INFINITY);
    best = more ? x : best;
    ids = more ? at : ids;
    at += LANES;
  }
  highest = largest(best);
  int64_t token = vocab;
  for (int i = 0; i < LANES; i++) {
    if (bad[i]) return NO_TOKEN;
    if (best[i] == highest) token = std::min<int64_t>(token, ids[i]);
  }
  return highest > -INFINITY ? token : NO_TOKEN;
}

template <typename S>
void walk(const S* logits, int64_t positions, int64_t vocab, float temperature, int64_t* tokens, float* entropy,
          double* confidence, double* margin) {
#pragma omp parallel for if (positions > 1)
  for (int64_t p = 0; p < positions; p++) {
    float highest;
    const S* const of = logits + p * vocab;
    const int64_t token = tokens[p] = likeliest(of, vocab, highest);
    if (!entropy) continue;
    if (token == NO_TOKEN) {
      entropy[p] = confidence[p] = margin[p] = NAN;
      continue;
    }
    Floats second = {};
    double sum = 0, weighted = 0;
    for (int64_t begin = 0; begin < vocab; begin += 4096) {  // float32 sums of few terms keep their digits
      Floats sums = {}, below = {};
      for (int64_t i = begin; i < std::min(vocab, begin + 4096); i += LANES) {
        Floats x = (read(of + i, vocab - i) - highest) / temperature;
        x = x > LEAST_LOG_P ? x : Floats{} + LEAST_LOG_P;
        Floats power = x > -87.0f ? exponential(x) : Floats{};
        sums += power;
        below += power * x;
        if (token >= i && token < i + LANES) power[token - i] = 0;
        second = power > second ? power : second;
      }
      sum += sum_of(sums);
      weighted += sum_of(below);
    }
    entropy[p] = float(std::log(sum) - weighted / sum);
    confidence[p] = 1 / sum;
    margin[p] = vocab > 1 ? (1 - double(largest(second))) / sum : confidence[p];
  }
}

}  // namespace

extern "C" {
void sbd_walk_bfloat16(const uint16_t* logits, int64_t positions, int64_t vocab, float temperature, int64_t* tokens,
                       float* entropy, double* confidence, double* margin) {
  walk(logits, positions, vocab, temperature, tokens, entropy, confidence, margin);
}
void sbd_walk_float32(const float* logits, int64_t positions, int64_t vocab, float temperature, int64_t* tokens, float* entropy,
                      double* confidence, double* margin) {
  walk(logits, positions, vocab, temperature, tokens, entropy, confidence, margin);
}
}
