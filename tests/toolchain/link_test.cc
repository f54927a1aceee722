// lld in process: the .so runs, is small, exports and imports what it should.
#include "toolchain/link.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "toolchain/compile.h"
#include "toolchain/embedded.h"
#include "tests/paths.h"

namespace coil::toolchain {
namespace {

#define EXPORT "extern \"C\" __attribute__((visibility(\"default\"))) "

// A .so in the file system for the time of a test.
class Loaded {
 public:
  explicit Loaded(const std::vector<uint8_t>& bytes) {
    static int counter = 0;
    path_ = testing::TempDir() + "coil_link_test_" + std::to_string(::getpid()) + "_" + std::to_string(counter++) + ".so";
    std::ofstream(path_, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    handle_ = ::dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) error_ = ::dlerror();
  }
  ~Loaded() {
    if (handle_ != nullptr) ::dlclose(handle_);
    std::filesystem::remove(path_);
  }
  template <class F>
  F* get(const char* name) const {
    return reinterpret_cast<F*>(handle_ != nullptr ? ::dlsym(handle_, name) : nullptr);
  }
  const std::string& error() const { return error_; }

 private:
  std::string path_, error_;
  void* handle_ = nullptr;
};

Bytes compiled(const char* source) {
  Result<Bytes> object = compile_cpp({.source = source});
  CHECK(object.ok(), object.ok() ? "" : object.error().message);
  return std::move(object).value();
}

bool contains(const std::vector<uint8_t>& bytes, std::string_view text) {
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()).find(text) != std::string_view::npos;
}

TEST(Link, RunsAndIsSmall) {
  const Bytes a = compiled("int helper(int); " EXPORT "int twice_plus_one(int x) { return helper(x) + 1; }");
  const Bytes b = compiled("int helper(int x) { return 2 * x; } " EXPORT "int not_asked_for() { return 5; }");
  const auto library = link_shared({.inputs = {{"a", a}, {"b", b}}, .soname = "model.so", .exports = {"twice_plus_one"}});
  ASSERT_TRUE(library.ok()) << library.error().to_string();
  EXPECT_LT(library.value().size(), 4000u);
  const Loaded loaded(library.value());
  ASSERT_EQ(loaded.error(), "");
  ASSERT_NE(loaded.get<int(int)>("twice_plus_one"), nullptr);
  EXPECT_EQ(loaded.get<int(int)>("twice_plus_one")(20), 41);
  EXPECT_EQ(loaded.get<int()>("not_asked_for"), nullptr);
  EXPECT_FALSE(contains(library.value(), "helper"));
}

TEST(Link, SameInputsSameBytes) {
  const Bytes a = compiled(EXPORT "int f() { return 1; }");
  const LinkRequest request{.inputs = {{"a", a}}, .soname = "m.so", .exports = {"f"}, .needed = {"libm.so.6"}};
  const auto first = link_shared(request), second = link_shared(request);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first.value(), second.value());
  EXPECT_FALSE(contains(first.value(), "/proc/"));
}

TEST(Link, FindsLibmByItself) {
  const Bytes a = compiled("extern \"C\" double tgamma(double); " EXPORT "double f(double x) { return tgamma(x); }");
  const auto library = link_shared({.inputs = {{"a", a}}, .exports = {"f"}, .needed = {"libm.so.6"}, .imports = {"tgamma"}});
  ASSERT_TRUE(library.ok()) << library.error().to_string();
  EXPECT_TRUE(contains(library.value(), "libm.so.6"));
  const Loaded loaded(library.value());
  ASSERT_EQ(loaded.error(), "");
  EXPECT_DOUBLE_EQ(loaded.get<double(double)>("f")(5.0), 24.0);
}

TEST(Link, ForbiddenImportIsAnError) {
  const Bytes a = compiled("extern \"C\" int mystery(); " EXPORT "int f() { return mystery(); }");
  const auto library = link_shared({.inputs = {{"kernel_a", a}}, .exports = {"f"}, .imports = {"memcpy"}});
  ASSERT_FALSE(library.ok());
  EXPECT_NE(library.error().message.find("mystery"), std::string::npos);
  EXPECT_TRUE(link_shared({.inputs = {{"kernel_a", a}}, .exports = {"f"}}).ok());
}

TEST(Link, DuplicateSymbolNamesTheInputs) {
  const Bytes a = compiled(EXPORT "int f() { return 1; }"), b = compiled(EXPORT "int f() { return 2; }");
  const auto library = link_shared({.inputs = {{"kernel_a", a}, {"kernel_b", b}}, .exports = {"f"}});
  ASSERT_FALSE(library.ok());
  EXPECT_NE(library.error().message.find("kernel_a"), std::string::npos) << library.error().message;
  EXPECT_NE(library.error().message.find("kernel_b"), std::string::npos) << library.error().message;
  EXPECT_TRUE(link_shared({.inputs = {{"kernel_a", a}}, .exports = {"f"}}).ok());  // the next one is right
}

TEST(Link, GarbageIsAnError) {
  const std::vector<uint8_t> garbage(1000, 42);
  EXPECT_FALSE(link_shared({.inputs = {{"garbage", garbage}}, .exports = {"f"}}).ok());
  EXPECT_FALSE(link_shared({.inputs = {}, .exports = {"f"}}).ok());
}

TEST(Link, LargeOutputPassesThePipe) {
  const Bytes a = compiled(EXPORT "const int table[1 << 20] = {1, 2, 3};");
  const auto library = link_shared({.inputs = {{"a", a}}, .exports = {"table"}});
  ASSERT_TRUE(library.ok()) << library.error().to_string();
  EXPECT_GT(library.value().size(), size_t{4} << 20);
  const Loaded loaded(library.value());
  ASSERT_EQ(loaded.error(), "");
  EXPECT_EQ(loaded.get<int>("table")[2], 3);
}

TEST(Embedded, FilesAreTheRepositorys) {
  ASSERT_FALSE(embedded_files().empty());
  for (const EmbeddedFile& file : embedded_files()) {
    std::ifstream stream(std::string(COIL_SOURCE_DIR) + "/" + std::string(file.path), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(stream)), {});
    EXPECT_TRUE(text == file.text()) << file.path;
  }
}

TEST(Embedded, ObjectsAreElfAndTheLibraryAnArchive) {
  for (const EmbeddedObject& object : embedded_objects()) {
    const std::string_view magic = object.name == "library" ? "!<arch>\n"
                                                            : "\x7f"
                                                              "ELF";
    EXPECT_TRUE(object.bytes().starts_with(magic)) << object.name << " " << object.isa;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(object.data) % 64, 0u);
  }
}

}  // namespace
}  // namespace coil::toolchain
