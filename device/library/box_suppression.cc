// Boxes by falling scores, of which those go that overlap an earlier one that stays.
#include <algorithm>

#include "device/library/linalg.h"

namespace {

// As torch.sort has it, falling: what is no number comes first, and equal scores stay in their order.
template <class T>
bool comes_first(const T* scores, int64_t a, int64_t b) {
  const bool no_a = scores[a] != scores[a], no_b = scores[b] != scores[b];
  if (no_a != no_b) return no_a;
  if (!no_a && scores[a] != scores[b]) return scores[a] > scores[b];
  return a < b;
}

template <class T>
T area(const T* box) {
  return (box[2] - box[0]) * (box[3] - box[1]);
}

template <class T>
bool overlap(const T* a, const T* b, double threshold) {
  const T width = std::max(T(0), std::min(a[2], b[2]) - std::max(a[0], b[0])), height = std::max(T(0), std::min(a[3], b[3]) - std::max(a[1], b[1]));
  const T shared = width * height;
  return static_cast<double>(shared / (area(a) + area(b) - shared)) > threshold;
}

template <class T>
void suppress(const CoilLibraryCall* call) {
  const T *boxes = static_cast<const T*>(call->in[0]), *scores = static_cast<const T*>(call->in[1]);
  const double threshold = *static_cast<const double*>(call->in[2]);
  int64_t* kept = static_cast<int64_t*>(call->out[0]);
  const int64_t n = call->sizes[0];
  for (int64_t i = 0; i < n; ++i) kept[i] = i;
  std::sort(kept, kept + n, [=](int64_t a, int64_t b) { return comes_first(scores, a, b); });
  int64_t count = 0;  // of those that stay: the first places of `kept`, whose order is not changed
  for (int64_t i = 0; i < n; ++i) {
    const int64_t candidate = kept[i];
    bool stays = true;
    for (int64_t j = 0; j < count && stays; ++j) stays = !overlap(boxes + 4 * kept[j], boxes + 4 * candidate, threshold);
    if (stays) kept[count++] = candidate;
  }
  for (int64_t i = count; i < n; ++i) kept[i] = 0;
  *static_cast<int64_t*>(call->out[1]) = count;
}

}  // namespace

// boxes [n, 4], scores [n], threshold [1] (f64) -> numbers of the boxes that stay [n] (i64), how many [1] (i64). sizes: n.
COIL_LIBRARY_ROUTINE(box_suppression) {
  call->dtype == COIL_FLOAT32 ? suppress<float>(call) : suppress<double>(call);
  return 0;
}
