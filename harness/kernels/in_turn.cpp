// Drafts in turn on a CPU, as harness/decoding/in_turn.py says: of each slot the likeliest candidates, the bigram term and the
// copies on top, and the likeliest of these sums is what the next slot is told of. Sums are in float32. Harness code:
// harness/kernels/walk.py.

#include <functional>
#include <vector>

#include "vectors.h"

namespace {

struct Candidates {
  std::vector<float> scores;  // largest first; of equals the lowest id first
  std::vector<int64_t> ids;
  bool usable = true;  // no logit is NaN or infinite
};

template <typename S>
Candidates likeliest(const S* logits, int64_t vocab, size_t count) {
  Candidates found;
  float least = -INFINITY;
  Whole bad = {};
  for (int64_t begin = 0; begin < vocab; begin += LANES) {
    const Floats x = read(logits + begin, vocab - begin);
    bad |= ~(x < INFINITY);
    const Whole more = x > least;
    if (!any(more)) continue;
    for (int i = 0; i < LANES; i++) {
      if (!(x[i] > least)) continue;
      const auto at = std::upper_bound(found.scores.begin(), found.scores.end(), x[i], std::greater<float>());
      found.ids.insert(found.ids.begin() + (at - found.scores.begin()), begin + i);
      found.scores.insert(at, x[i]);
      if (found.scores.size() > count) {
        found.scores.pop_back();
        found.ids.pop_back();
      }
      if (found.scores.size() == count) least = found.scores.back();
    }
  }
  found.usable = !any(bad) && !found.scores.empty();
  return found;
}

template <typename S>
float product(const S* weights, const float* x, int64_t count) {
  Floats sums = {};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) sums += load(weights + i) * load(x + i);
  float sum = sum_of(sums);
  for (; i < count; i++) sum += widened(weights[i]) * x[i];
  return sum;
}

template <typename S>
struct Bigram {  // before and head (vocab, hidden), down (rank, hidden), up (hidden, rank)
  const S *before, *head, *down, *up;
  int64_t hidden, rank;

  void add(int64_t token, Candidates& to) const {
    std::vector<float> e(hidden), low(rank), told(hidden);
    for (int64_t i = 0; i < hidden; i++) e[i] = widened(before[token * hidden + i]);
    for (int64_t i = 0; i < rank; i++) low[i] = product(down + i * hidden, e.data(), hidden);
    for (int64_t i = 0; i < hidden; i++) told[i] = product(up + i * rank, low.data(), rank);
    for (size_t c = 0; c < to.ids.size(); c++) to.scores[c] += product(head + to.ids[c] * hidden, told.data(), hidden);
  }
};

// A place before ``end`` whose tokens up to it are the last one, two or three favours the token behind it by nats[1 to 3].
void add_copies(const int64_t* text, int64_t end, const float* nats, Candidates& to) {
  std::vector<float> most(to.ids.size());
  for (int64_t place = 0; place < end; place++) {
    int alike = 0;
    while (alike < 3 && alike <= place && text[place - alike] == text[end - alike]) alike++;
    for (size_t c = 0; alike && c < to.ids.size(); c++)
      if (to.ids[c] == text[place + 1]) most[c] = std::max(most[c], nats[alike]);
  }
  for (size_t c = 0; c < to.ids.size(); c++) to.scores[c] += most[c];
}

template <typename S>
void drafts(const S* logits, int64_t rows, int64_t slots, int64_t vocab, int64_t count, int64_t* text, int64_t width,
            const int64_t* newest, const float* nats, const Bigram<S>* bigram) {
#pragma omp parallel for if (rows > 1)
  for (int64_t row = 0; row < rows; row++) {
    int64_t* const of = text + row * width;
    for (int64_t slot = 1; slot < slots; slot++) {
      const int64_t end = newest[row] + slot - 1;
      Candidates found = likeliest(logits + (row * slots + slot) * vocab, vocab, count);
      if (bigram) bigram->add(std::max<int64_t>(of[end], 0), found);
      if (nats) add_copies(of, end, nats, found);
      int64_t token = NO_TOKEN;
      float highest = -INFINITY;
      for (size_t c = 0; found.usable && c < found.ids.size(); c++) {
        if (found.scores[c] < highest || (found.scores[c] == highest && found.ids[c] > token)) continue;
        highest = found.scores[c];
        token = found.ids[c];
      }
      of[end + 1] = token;
    }
  }
}

}  // namespace

extern "C" {
void sbd_in_turn_bfloat16(const uint16_t* logits, int64_t rows, int64_t slots, int64_t vocab, int64_t count, int64_t* text,
                          int64_t width, const int64_t* newest, const float* nats, const void* bigram) {
  drafts(logits, rows, slots, vocab, count, text, width, newest, nats, static_cast<const Bigram<uint16_t>*>(bigram));
}
void sbd_in_turn_float32(const float* logits, int64_t rows, int64_t slots, int64_t vocab, int64_t count, int64_t* text,
                         int64_t width, const int64_t* newest, const float* nats, const void* bigram) {
  drafts(logits, rows, slots, vocab, count, text, width, newest, nats, static_cast<const Bigram<float>*>(bigram));
}
}
