// `fuzz_NAME --inputs=N --seconds=S [--first=K] [--artifact=FILE] SEEDS...`: N inputs from number K on that are the same on every machine, or as many of
// them as S seconds allow, instead of libFuzzer's search. libFuzzer keeps what reaches new code and mutates it again, so what it tries depends on processor,
// compiler and clock, even with a fixed seed: right for finding faults, wrong for a test that has to say the same twice. Here input i is one of the seeds,
// mutated by numbers that i seeds. The input being tried lies in FILE, which stays when the process dies: `fuzz_NAME FILE` tries it again.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" {
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// A target's own mutation, where it has one.
__attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed);
// What a target prepares before the first input.
__attribute__((weak)) void prepare_fuzz_target();
}

namespace {

using Bytes = std::vector<uint8_t>;
constexpr size_t kMostBytes = size_t{1} << 20;
constexpr size_t kRoomToGrow = size_t{1} << 16;
constexpr unsigned kSecondsAnInput = 25;
constexpr long kMostMegabytes = 2048;

struct Options {
  uint64_t first = 0, inputs = 0;
  double seconds = 60;
  std::string artifact;
  std::vector<std::string> paths;
};

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.starts_with("--inputs=")) options.inputs = std::strtoull(arg.c_str() + 9, nullptr, 10);
    else if (arg.starts_with("--first=")) options.first = std::strtoull(arg.c_str() + 8, nullptr, 10);
    else if (arg.starts_with("--seconds=")) options.seconds = std::strtod(arg.c_str() + 10, nullptr);
    else if (arg.starts_with("--artifact=")) options.artifact = arg.substr(11);
    else if (!arg.starts_with("-")) options.paths.push_back(arg);
  }
  return options;
}

Bytes bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The files of the folders, in the order of their names; without any, the empty input and some random ones.
std::vector<Bytes> read_seeds(const std::vector<std::string>& folders) {
  std::vector<std::filesystem::path> paths;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<Bytes> seeds;
  for (const std::filesystem::path& path : paths) seeds.push_back(bytes_of(path));
  std::mt19937_64 random(1);
  for (size_t size : {0, 1, 7, 64, 300, 2000}) {
    Bytes bytes(size);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    seeds.push_back(std::move(bytes));
  }
  return seeds;
}

size_t below(std::mt19937_64& random, size_t end) { return end == 0 ? 0 : random() % end; }

// A part of `from`, of at most 64 bytes mostly, else of any length.
Bytes part_of(const Bytes& from, std::mt19937_64& random) {
  const size_t first = below(random, from.size());
  const size_t rest = from.size() - first;
  const size_t size = std::min(rest, random() % 4 ? below(random, 64) : below(random, rest + 1));
  return {from.begin() + static_cast<long>(first), from.begin() + static_cast<long>(first + size)};
}

void write_number(Bytes& bytes, std::mt19937_64& random) {
  constexpr uint64_t kNumbers[] = {0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, INT64_MAX, uint64_t{1} << 63, UINT64_MAX};
  const uint64_t number = kNumbers[random() % std::size(kNumbers)] + random() % 3 - 1;
  const size_t width = std::min(size_t{1} << random() % 4, bytes.size());
  if (width > 0) std::memcpy(bytes.data() + below(random, bytes.size() - width + 1), &number, width);
}

void mutate(Bytes& bytes, const std::vector<Bytes>& seeds, std::mt19937_64& random) {
  const auto at = [&] { return bytes.begin() + static_cast<long>(below(random, bytes.size() + 1)); };
  switch (random() % 6) {
    case 0:
      if (!bytes.empty()) bytes[below(random, bytes.size())] ^= static_cast<uint8_t>(1u << random() % 8);
      break;
    case 1: write_number(bytes, random); break;
    case 2: {
      const Bytes part = part_of(bytes, random);
      const size_t first = below(random, bytes.size() - part.size() + 1);
      bytes.erase(bytes.begin() + static_cast<long>(first), bytes.begin() + static_cast<long>(first + part.size()));
      break;
    }
    case 3: {
      const Bytes part = part_of(seeds[random() % seeds.size()], random);
      bytes.insert(at(), part.begin(), part.end());
      break;
    }
    case 4: {
      const Bytes part = part_of(bytes, random);
      bytes.insert(at(), part.begin(), part.end());
      break;
    }
    default:  // A digit or a letter becomes another one: numbers and names in text.
      if (!bytes.empty()) bytes[below(random, bytes.size())] = static_cast<uint8_t>("0123456789-.aZ\"{[\\\n"[random() % 19]);
  }
}

Bytes input_of(uint64_t i, const std::vector<Bytes>& seeds) {
  if (i < seeds.size()) return seeds[i];
  std::mt19937_64 random(i);
  Bytes bytes = seeds[random() % seeds.size()];
  if (LLVMFuzzerCustomMutator && random() % 8) {
    for (uint64_t times = 1 + random() % 4; times > 0; --times) {
      const size_t size = bytes.size();
      bytes.resize(size + kRoomToGrow);
      const size_t mutated = LLVMFuzzerCustomMutator(bytes.data(), size, bytes.size(), static_cast<unsigned>(random()));
      bytes.resize(mutated > 0 ? mutated : size);
    }
    return bytes;
  }
  for (uint64_t times = 1 + random() % 5; times > 0; --times) mutate(bytes, seeds, random);
  if (bytes.size() > kMostBytes) bytes.resize(kMostBytes);
  return bytes;
}

long peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss >> 10;
}

void keep(const std::string& path, const Bytes& bytes) {
  if (path.empty()) return;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
}

int run(const Options& options) {
  using Clock = std::chrono::steady_clock;
  if (prepare_fuzz_target) prepare_fuzz_target();
  const std::vector<Bytes> seeds = read_seeds(options.paths);
  const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
  uint64_t tried = 0;
  for (; tried < options.inputs && Clock::now() < end; ++tried) {
    const Bytes bytes = input_of(options.first + tried, seeds);
    keep(options.artifact, bytes);
    alarm(kSecondsAnInput);  // Its signal ends the process.
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    alarm(0);
    if (peak_megabytes() > kMostMegabytes) {
      std::fprintf(stderr, "input %llu: %ld MB\n", static_cast<unsigned long long>(options.first + tried), peak_megabytes());
      return 1;
    }
  }
  if (!options.artifact.empty()) std::filesystem::remove(options.artifact);
  std::fprintf(stderr, "%llu inputs, %ld MB at most\n", static_cast<unsigned long long>(tried), peak_megabytes());
  return 0;
}

}  // namespace

#ifdef COIL_OWN_MAIN  // without libFuzzer; `fuzz_NAME FILE` tries that input
int main(int argc, char** argv) {
  const Options options = options_of(argc, argv);
  if (options.inputs > 0) return run(options);
  if (prepare_fuzz_target) prepare_fuzz_target();
  for (const std::string& path : options.paths) {
    const Bytes bytes = bytes_of(path);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  return 0;
}
#else
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const Options options = options_of(*argc, *argv);
  if (options.inputs > 0) std::exit(run(options));
  if (prepare_fuzz_target) prepare_fuzz_target();
  return 0;
}
#endif
