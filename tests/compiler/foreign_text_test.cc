// Texts of a program's file cannot reach the code that is generated for it: not from comments, not from literals, not by what they are called.
#include "codegen/foreign_text.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include <fmt/format.h>

#include "compiler/build_target.h"
#include "compiler/compile.h"
#include "compiler/target.h"
#include "tests/fuzz/renamed_program.h"
#include "tests/paths.h"
#include "toolchain/nvrtc.h"

namespace coil::testing {
namespace {

constexpr const char* kPrograms[] = {"programs/checks",     "programs/apart",       "programs/user",           "programs/loop",
                                     "seeds/reader/branch", "seeds/reader/counter", "seeds/reader/mlp_dynamic"};

// What would run when the package is loaded, if it were code.
constexpr const char* kCode = "extern \"C\" int system(const char*); __attribute__((constructor)) static void run() { system(\"touch exploited\"); }";

const std::vector<std::string>& texts() {
  static const std::vector<std::string> all = {
      "plain",
      std::string("\r") + kCode + " //",
      std::string("\n") + kCode + " //",
      std::string("\v") + kCode + "\f" + kCode,
      "\xE2\x80\xA8" + std::string(kCode) + "\xC2\x85" + kCode,  // U+2028, U+0085
      std::string("*/ ") + kCode + " /*",
      "ends in a backslash \\",
      "a backslash and a space \\ ",
      "a trigraph ?"
      "?/",
      "more trigraphs ?"
      "?/?"
      "?/ ?"
      "?> ??"
      "?/",
      "\\\r\n\\\n",
      "\\u000a #error \\u002a/",
      "\"; " + std::string(kCode) + " const char* x = \"",
      "R\"(",
      ")\" R\"x(",
      "')' '\"'",
      "%s%n%d {} {0} {{ }} {:s} %",
      std::string("zero\0byte", 9),
      "@NAME@",
      "COIL_NAME(x)",
      "#define float int",
      "\n#define float int\n",
      "\n#include \"/etc/passwd\"\n",
      "\x1b[2J\x1b]0;title\x07",
      "\xEF\xBB\xBF",
      "\xC3\xA9\xE6\xBC\xA2\xF0\x9F\x98\x80",
      "caf\xC3",
      std::string(200'000, 'x'),
      std::string(100'000, '\n'),
      "",
  };
  return all;
}

const ZipReader& archive(const std::string& program) {
  static std::map<std::string, ZipReader> open;
  const auto it = open.find(program);
  if (it != open.end()) return it->second;
  return open.emplace(program, ZipReader::open(COIL_SOURCE_DIR "/tests/fuzz/" + program + ".pt2").value()).first->second;
}

// Every name and every text is `text`; names are numbered, so that they stay different.
std::vector<uint8_t> renamed(const std::string& program, const std::string& text) {
  std::map<std::string, size_t> numbers;
  const Names names = {[&](const std::string& old) { return fmt::format("{}_{}", text, numbers.try_emplace(old, numbers.size()).first->second); },
                       [&](const std::string&) { return text; }};
  return Renamer(names).run(archive(program));
}

class ForeignText : public ::testing::TestWithParam<const char*> {};

TEST_P(ForeignText, DoesNotChangeTheCode) {
  const std::vector<uint8_t> first = renamed(GetParam(), "plain");
  for (const std::string& text : texts()) {
    // The user's kernel has the same file in both: its name is in a #line, and the kernel's name is a hash of its text.
    const Result<Generated> plain = generated(first, text);
    ASSERT_TRUE(plain.ok()) << plain.error().to_string();
    const std::vector<uint8_t> bytes = renamed(GetParam(), text);
    const Result<Generated> other = generated(bytes, text);
    const std::string shown = comment_text(text);
    ASSERT_TRUE(other.ok()) << shown << ": " << other.error().to_string();
    const auto expect_same = [&](const std::string& is, const std::string& was) { EXPECT_EQ(code_of(is), code_of(was)) << "with the text '" << shown << "'"; };
    const auto expect_all = [&](const std::vector<std::string>& is, const std::vector<std::string>& was) {
      ASSERT_EQ(is.size(), was.size()) << shown;
      for (size_t i = 0; i < is.size(); ++i) expect_same(is[i], was[i]);
    };
    expect_all(other.value().kernels, plain.value().kernels);
    expect_all(other.value().cuda_kernels, plain.value().cuda_kernels);
    expect_same(other.value().host, plain.value().host);
    expect_same(other.value().cuda_host, plain.value().cuda_host);
    // Comments are short, whatever a file holds.
    for (size_t i = 0; i < other.value().kernels.size(); ++i) EXPECT_LT(other.value().kernels[i].size(), plain.value().kernels[i].size() + 50'000);
  }
}

// The instructions of an object, by section; what they refer to is in other sections.
std::map<std::string, std::string> instructions(const toolchain::Bytes& object) {
  const auto* file = reinterpret_cast<const char*>(object.data());
  Elf64_Ehdr head;
  std::memcpy(&head, file, sizeof head);
  std::vector<Elf64_Shdr> sections(head.e_shnum);
  std::memcpy(sections.data(), file + head.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  std::map<std::string, std::string> out;
  for (const Elf64_Shdr& s : sections) {
    if (s.sh_flags & SHF_EXECINSTR) out[file + sections[head.e_shstrndx].sh_offset + s.sh_name] += std::string(file + s.sh_offset, s.sh_size);
  }
  return out;
}

// The real compiler agrees: the same objects of the kernels; what it says of the host program's text is an error (E901) if there is one.
TEST_P(ForeignText, DoesNotChangeTheObjects) {
  const auto objects = [&](const Generated& g) {
    std::vector<toolchain::CompileRequest> requests = {host_request(this_machine(), g.host)};
    if (!g.cuda_host.empty()) requests.push_back(host_request(this_machine(), g.cuda_host));
    for (const std::string& kernel : g.kernels) {
      std::string headers = "#include \"kernel_args.h\"\n";
      for (const char* h : {"simd.h", "math_all.h", "sort.h", "user/index.h", "user/kernel.h"}) headers += fmt::format("#include \"{}\"\n", h);
      requests.push_back({.name = "kernel.cc", .source = headers + kernel, .opt_level = 1});
    }
    return toolchain::compile_all(requests, 2);
  };
  const std::vector<uint8_t> first = renamed(GetParam(), "plain");
  const Result<Generated> plain = generated(first, texts()[1]);
  ASSERT_TRUE(plain.ok());
  const auto was = objects(plain.value());
  ASSERT_TRUE(was.ok()) << was.error().to_string();
  // All texts at once, in turn.
  size_t next = 0;
  std::map<std::string, std::string> known;
  const Names names = {[&](const std::string& old) {
                         const auto [it, fresh] = known.try_emplace(old);
                         if (fresh) it->second = fmt::format("{}_{}", texts()[next++ % texts().size()], known.size());
                         return it->second;
                       },
                       [&](const std::string&) { return texts()[next++ % texts().size()]; }};
  const std::vector<uint8_t> bytes = Renamer(names).run(archive(GetParam()));
  const Result<Generated> other = generated(bytes, texts()[1]);
  ASSERT_TRUE(other.ok()) << other.error().to_string();
  const auto is = objects(other.value());
  ASSERT_TRUE(is.ok()) << is.error().to_string();
  ASSERT_EQ(is.value().size(), was.value().size());
  const size_t hosts = other.value().cuda_host.empty() ? 1 : 2;
  for (size_t i = 0; i < hosts; ++i) EXPECT_EQ(instructions(is.value()[i]), instructions(was.value()[i])) << i;  // strings are data
  for (size_t i = hosts; i < is.value().size(); ++i) EXPECT_EQ(is.value()[i], was.value()[i]) << i;
}

// NVRTC agrees as well, where it is installed: the same PTX.
TEST_P(ForeignText, DoesNotChangeThePtx) {
  const auto nvrtc = toolchain::Nvrtc::load();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.error().to_string();
  const auto built = [&](const std::string& text) {
    const std::vector<uint8_t> bytes = renamed(GetParam(), text);
    const Result<Generated> g = generated(bytes, texts()[1]);
    EXPECT_TRUE(g.ok());
    std::vector<toolchain::CudaRequest> requests;
    for (size_t i = 0; i < g.value().cuda_kernels.size(); ++i) {
      std::string headers;
      for (const std::string& h : g.value().cuda_headers[i]) headers += "#include \"" + h + "\"\n";
      requests.push_back({"kernels.cu", headers + g.value().cuda_kernels[i], "compute_90", true, {}, "", ""});
    }
    auto made = nvrtc.value()->compile_all(requests, 2);
    EXPECT_TRUE(made.ok()) << comment_text(text) << ": " << (made.ok() ? "" : made.error().to_string());
    return made.ok() ? made.value() : std::vector<toolchain::Bytes>();
  };
  const std::vector<toolchain::Bytes> was = built("plain");
  for (const size_t i : {size_t{1}, size_t{8}}) {
    const std::vector<toolchain::Bytes> is = built(texts()[i]);
    ASSERT_EQ(is.size(), was.size());
    for (size_t k = 0; k < is.size(); ++k) EXPECT_EQ(is[k], was[k]) << comment_text(texts()[i]) << ", kernel " << k;
  }
}

// The package as a whole: units of the same kernels, a manifest that is JSON.
TEST_P(ForeignText, MakesAPackage) {
  const Result<std::shared_ptr<const UserKernel>> kernel = scaled_kernel("a\r\nb.cc");
  ReadOptions read;
  read.kernels = {kernel.value()};
  CompileOptions options;
  options.targets = parse_targets("cpu:x86-64-v3").value();
  options.opt_level = 0;
  const auto units = [&](const std::string& text) {
    const std::vector<uint8_t> bytes = renamed(GetParam(), text);
    const ZipReader zip = ZipReader::from_bytes(bytes, "input").value();
    const Result<Graph> graph = read_program(zip, read);
    EXPECT_TRUE(graph.ok());
    const Result<std::vector<uint8_t>> package = compile_to_memory(graph.value(), options);
    EXPECT_TRUE(package.ok()) << comment_text(text) << ": " << (package.ok() ? "" : package.error().to_string());
    std::map<std::string, std::string> out;
    if (!package.ok()) return out;
    const ZipReader made = ZipReader::from_bytes(package.value(), "package").value();
    for (const ZipEntry& e : made.entries()) {
      const std::string content = made.read_text(e, uint64_t{1} << 30).value();
      EXPECT_TRUE(!e.name.ends_with("manifest.json") || nlohmann::json::accept(content));
      if (e.name.find("/src/") != std::string::npos) out[e.name] = code_of(content);
    }
    return out;
  };
  const auto plain = units("plain");
  EXPECT_FALSE(plain.empty());
  for (const size_t i : {size_t{1}, size_t{24}, size_t{26}, texts().size() - 3}) EXPECT_EQ(units(texts()[i]), plain);
}

INSTANTIATE_TEST_SUITE_P(Programs, ForeignText, ::testing::ValuesIn(kPrograms), [](const auto& at) {
  const std::string path = at.param;
  return path.substr(path.rfind('/') + 1);
});

// The judge of all this.
TEST(CodeOf, ReadsAsACompilerDoes) {
  EXPECT_EQ(code_of("a // b\nc"), "a \nc");
  EXPECT_EQ(code_of("a // b \\\nc\nd"), "a \nd");  // the next line belongs to the comment
  EXPECT_EQ(code_of("a // b ?"
                    "?/\nc\nd"),
            "a \nd");  // and so here
  EXPECT_EQ(code_of("a // b \\ \r\nc\rd"), "a \rd");
  EXPECT_EQ(code_of("a // b\rc"), "a \rc");  // a line's end for some compilers
  EXPECT_EQ(code_of("a /\\\n* b *\\\n/ c"), "a   c");
  EXPECT_EQ(code_of("a /* \" */ b \" /* \" c"), "a   b \"\" c");
  EXPECT_EQ(code_of("\"a\\\"b\" c"), "\"\" c");
  EXPECT_EQ(code_of("R\"x(a)\" // )x\" c"), "R\"\" c");
  EXPECT_EQ(code_of("u8R\"(\\)\" c"), "u8R\"\" c");
  EXPECT_EQ(code_of("FOUR\"(\" c"), "FOUR\"\" c");
  EXPECT_EQ(code_of("'\"' c '\\'' d"), "'' c '' d");
  EXPECT_EQ(code_of("1'000'000 + '/' // x"), "1'000'000 + '' ");
  EXPECT_EQ(code_of("\"a\x1b\""), "(unescaped)\"\"");
  EXPECT_NE(code_of("a \"x\ny\""), code_of("a \"xy\""));
}

TEST(CommentText, IsOneHarmlessLine) {
  for (const std::string& text : texts()) {
    for (const std::string& piece : {comment_text(text), comment_text(text + text), comment_text("/" + text + "?")}) {
      EXPECT_LE(piece.size(), 250u);
      for (const char c : piece) EXPECT_TRUE(c >= 0x20 && c < 0x7f);
      for (const char* bad : {"\\", "*/", "/*",
                              "?"
                              "?"})
        EXPECT_EQ(piece.find(bad), std::string::npos) << piece;
    }
  }
  EXPECT_EQ(comment_text("model.py:13 in forward"), "model.py:13 in forward");
  EXPECT_EQ(comment_text("caf\xC3\xA9 \xE6\xBC\xA2"), "caf. .");
  EXPECT_EQ(comment_text("a*/b\\"), "a* /b/");
}

TEST(CommentText, LiteralsKeepTheirBytes) {
  EXPECT_EQ(c_string("a\"\\\n?\xC3"), "\"a\\\"\\\\\\012\\077\\303\"");
  EXPECT_EQ(message_literal("a\x1b[2J\"\xff"), "\"a\\\\x1b[2J\\\"\\\\xff\"");
  EXPECT_EQ(line_directive("a\"b\\\rc"), "#line 1 \"a_b/.c\"\n");
}

}  // namespace
}  // namespace coil::testing
