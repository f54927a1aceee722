// Runs a compiled digits net on the held-out images and shows a few: digits_demo PACKAGE digits_test.npz [HOW_MANY]
// Needs include/coil/coil.hpp and libcoil_runtime, nothing else (CMake target: digits_demo).
#include <coil/coil.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kSide = 8, kPixels = kSide * kSide, kClasses = 10;

// A little-endian unsigned number of `bytes` bytes at `at`; throws when that is outside the file.
std::uint64_t number(const std::string& file, std::size_t at, std::size_t bytes) {
  if (at > file.size() || bytes > file.size() - at) throw std::runtime_error("the npz file is truncated");
  std::uint64_t value = 0;
  std::memcpy(&value, file.data() + at, bytes);
  return value;
}

// The elements of the array `name` of an uncompressed .npz (a zip of .npy files, as numpy.savez writes it).
template <class T>
std::vector<T> read_array(const std::string& npz, const std::string& name, const std::string& descr) {
  std::size_t end = npz.rfind("PK\5\6");
  if (end == std::string::npos) throw std::runtime_error("not an npz file");
  std::size_t entry = number(npz, end + 16, 4);
  for (std::uint64_t left = number(npz, end + 10, 2); left > 0; left--) {
    std::size_t name_bytes = number(npz, entry + 28, 2), bytes = number(npz, entry + 24, 4), local = number(npz, entry + 42, 4);
    if (npz.compare(entry + 46, name_bytes, name + ".npy") == 0) {
      if (number(npz, entry + 10, 2) != 0) throw std::runtime_error(name + " is compressed: write it with numpy.savez");
      std::size_t npy = local + 30 + number(npz, local + 26, 2) + number(npz, local + 28, 2);
      std::size_t header_bytes = 10 + number(npz, npy + 8, 2);
      if (bytes < header_bytes || npy + bytes > npz.size()) throw std::runtime_error(name + " is truncated");
      if (npz.substr(npy, header_bytes).find(descr) == std::string::npos) throw std::runtime_error(name + " is not of type " + descr);
      std::vector<T> values((bytes - header_bytes) / sizeof(T));
      std::memcpy(values.data(), npz.data() + npy + header_bytes, values.size() * sizeof(T));
      return values;
    }
    entry += 46 + name_bytes + number(npz, entry + 30, 2) + number(npz, entry + 32, 2);
  }
  throw std::runtime_error("the npz file has no array " + name);
}

// One row of pixels as text: two columns of blocks for each pixel, darker ink in denser blocks.
std::string picture_row(const float* row) {
  static const char* const kInk[] = {"  ", "░░", "▒▒", "▓▓", "██"};
  std::string text;
  for (int x = 0; x < kSide; x++) text += kInk[std::clamp(static_cast<int>(row[x] * 4.99f), 0, 4)];
  return text;
}

// Draws the images `shown` side by side, each with its predicted class below.
void draw(const std::vector<float>& images, const std::vector<int>& shown, const std::vector<int>& predicted, const std::vector<std::int64_t>& labels) {
  for (int y = 0; y < kSide; y++) {
    for (int i : shown) std::printf("  %s", picture_row(&images[static_cast<std::size_t>(i) * kPixels + y * kSide]).c_str());
    std::printf("\n");
  }
  for (int i : shown) {
    bool right = predicted[i] == labels[i];
    std::printf("  %8d %-7s", predicted[i], right ? "✓" : ("(is " + std::to_string(labels[i]) + ")").c_str());
    if (right) std::printf("  ");  // the tick is three bytes and one column
  }
  std::printf("\n\n");
}

// Median seconds of 200 calls.
double median_seconds(coil::Context& context, const std::vector<coil::Tensor>& inputs) {
  std::vector<double> times;
  for (int i = 0; i < 200; i++) {
    auto start = std::chrono::steady_clock::now();
    context.run(inputs);
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

int demo(const char* package, const char* npz_path, int how_many) {
  std::ifstream stream(npz_path, std::ios::binary);
  if (!stream) throw std::runtime_error(std::string("cannot open ") + npz_path);
  std::string npz{std::istreambuf_iterator<char>(stream), {}};
  auto images = read_array<float>(npz, "in_0", "'<f4'");
  auto labels = read_array<std::int64_t>(npz, "labels", "'<i8'");
  auto count = static_cast<int>(labels.size());
  if (count == 0 || images.size() != labels.size() * kPixels) throw std::runtime_error("images and labels do not fit");

  auto start = std::chrono::steady_clock::now();
  coil::Model model(package);
  double load = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  coil::Context context(model);
  std::vector<coil::Tensor> inputs{coil::Tensor(images.data(), {count, 1, kSide, kSide})};
  coil::Tensor logits = context.run(inputs)[0];

  std::vector<int> predicted;
  int right = 0;
  for (int i = 0; i < count; i++) {
    const float* row = logits.data<float>() + i * kClasses;
    predicted.push_back(static_cast<int>(std::max_element(row, row + kClasses) - row));
    right += predicted.back() == labels[static_cast<std::size_t>(i)];
  }
  std::vector<int> first, wrong;
  for (int i = 0; i < count; i++) (predicted[i] == labels[i] ? first : wrong).push_back(i);
  first.resize(std::min<std::size_t>(first.size(), how_many));
  wrong.resize(std::min<std::size_t>(wrong.size(), how_many));
  draw(images, first, predicted, labels);
  if (!wrong.empty()) {
    std::printf("  where it errs:\n");
    draw(images, wrong, predicted, labels);
  }

  double all = median_seconds(context, inputs), one = median_seconds(context, {coil::Tensor(images.data(), {1, 1, kSide, kSide})});
  std::printf("accuracy        %.2f %% (%d of %d held-out images)\n", 100.0 * right / count, right, count);
  std::printf("load            %.2f ms (%s code, %d threads)\n", load * 1e3, model.isa().c_str(), model.num_threads());
  std::printf("time per image  %.2f us (batch %d), %.2f us (batch 1)\n", all / count * 1e6, count, one * 1e6);
  return right >= 0.97 * count ? 0 : 1;  // what train.py promised
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: %s PACKAGE digits_test.npz [HOW_MANY]\n", argv[0]), 2;
  try {
    return demo(argv[1], argv[2], argc > 3 ? std::max(1, std::atoi(argv[3])) : 5);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
