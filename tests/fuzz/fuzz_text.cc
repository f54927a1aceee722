// Texts of a program's file (names, source lines, module paths, messages) on their way into generated C++ and CUDA. Input: the number of a program of
// tests/fuzz, then texts with zero bytes between them that take the places of the program's own, in turn. The code must be that of the program as it was.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "tests/fuzz/renamed_program.h"

namespace {

using namespace coil;
using namespace coil::testing;

constexpr const char* kPrograms[] = {"programs/checks",     "programs/apart",       "programs/user",           "programs/loop",
                                     "seeds/reader/branch", "seeds/reader/counter", "seeds/reader/mlp_dynamic"};

struct Program {
  ZipReader zip;
  Generated plain;
};

const Program& program(size_t i) {
  static std::map<size_t, Program> known;
  if (const auto it = known.find(i); it != known.end()) return it->second;
  ZipReader zip = ZipReader::open(std::string(COIL_SOURCE_DIR "/tests/fuzz/") + kPrograms[i] + ".pt2").value();
  const auto same = [](const std::string& old) { return old; };
  const Names names = {same, same};
  Generated plain = generated(Renamer(names).run(zip), "file.cc").value();
  return known.emplace(i, Program{std::move(zip), std::move(plain)}).first->second;
}

// A function of the user's is named by a hash of its text too, in which the name of its file stands: "_" and eight digits.
std::string without_hashes(std::string code) {
  const auto digit = [&](size_t i) { return i < code.size() && ((code[i] >= '0' && code[i] <= '9') || (code[i] >= 'a' && code[i] <= 'f')); };
  for (size_t i = 0; i < code.size(); ++i) {
    size_t end = i + 1;
    while (code[i] == '_' && digit(end)) ++end;
    if (end - i == 9) code.replace(i + 1, 8, "########");
  }
  return code;
}

void compare(const std::string& is, const std::string& was) {
  if (without_hashes(code_of(is)) == without_hashes(code_of(was))) return;
  std::fprintf(stderr, "the code differs:\n%s\n---- was:\n%s\n", is.c_str(), was.c_str());
  std::abort();
}

void compare(const std::vector<std::string>& is, const std::vector<std::string>& was) {
  if (is.size() != was.size()) std::abort();
  for (size_t i = 0; i < is.size(); ++i) compare(is[i], was[i]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 4096) return 0;
  const Program& p = program(data[0] % std::size(kPrograms));
  std::vector<std::string> texts = {""};
  for (size_t i = 1; i < size; ++i) {
    if (data[i] == 0 && texts.size() < 64) texts.emplace_back();
    else texts.back() += static_cast<char>(data[i]);
  }
  size_t next = 0;
  std::map<std::string, std::string> names;
  const auto text = [&](const std::string&) { return texts[next++ % texts.size()]; };
  const auto name = [&](const std::string& old) {
    const auto [it, fresh] = names.try_emplace(old);
    if (fresh) it->second = texts[next++ % texts.size()] + "_" + std::to_string(names.size());
    return it->second;
  };
  const Names chosen = {name, text};
  const Result<Generated> g = generated(Renamer(chosen).run(p.zip), texts[0]);
  if (!g.ok()) {
    if (g.error().message.empty() || g.error().code == ErrorCode::internal) std::abort();
    return 0;
  }
  compare(g.value().kernels, p.plain.kernels);
  compare(g.value().cuda_kernels, p.plain.cuda_kernels);
  compare(g.value().host, p.plain.host);
  compare(g.value().cuda_host, p.plain.cuda_host);
  return 0;
}
