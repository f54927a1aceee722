// clang in process: what compiles, what does not, and that the same text gives the same bytes.
#include "toolchain/compile.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include "base/host_machine.h"
#include "toolchain/data_object.h"
#include "toolchain/embedded.h"
#include "toolchain/link.h"

namespace coil::toolchain {
namespace {

constexpr const char* kAdd = R"(
typedef float v __attribute__((ext_vector_type(16), aligned(4)));
extern "C" __attribute__((visibility("default"))) void add(const float* a, const float* b, float* o, long n) {
  for (long i = 0; i + 16 <= n; i += 16) *(v*)(o + i) = *(const v*)(a + i) + *(const v*)(b + i);
})";

TEST(Compile, GivesAnElfObject) {
  const Result<Bytes> object = compile_cpp({.source = kAdd});
  ASSERT_TRUE(object.ok()) << object.error().to_string();
  ASSERT_GT(object.value().size(), 64u);
  EXPECT_EQ(std::string(object.value().begin(), object.value().begin() + 4),
            "\x7f"
            "ELF");
}

TEST(Compile, SameTextSameBytes) {
  const CompileRequest request{.source = kAdd, .cpu = "x86-64-v4"};
  const Result<Bytes> first = compile_cpp(request), second = compile_cpp(request);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first.value(), second.value());
}

TEST(Compile, UsesWholeVectorsOfTheInstructionSet) {
  const Result<std::string> v3 = compile_to_assembly({.source = kAdd, .cpu = "x86-64-v3"});
  const Result<std::string> v4 = compile_to_assembly({.source = kAdd, .cpu = "x86-64-v4"});
  ASSERT_TRUE(v3.ok() && v4.ok());
  EXPECT_NE(v3.value().find("%ymm"), std::string::npos);
  EXPECT_EQ(v3.value().find("%zmm"), std::string::npos);
  EXPECT_NE(v4.value().find("%zmm"), std::string::npos);
}

TEST(Compile, SplitsNothingThatClangVectorises) {
  const char* loop = "void f(float* __restrict a, const float* __restrict b, long n) { for (long i = 0; i < n; ++i) a[i] += b[i]; }";
  const Result<std::string> v4 = compile_to_assembly({.source = loop, .cpu = "x86-64-v4"});
  ASSERT_TRUE(v4.ok());
  EXPECT_NE(v4.value().find("%zmm"), std::string::npos);
}

TEST(Compile, ErrorsShowTheLine) {
  const Result<Bytes> object = compile_cpp({.name = "bad_kernel.cc", .source = "int f() {\n  return missing_name;\n}\n"});
  ASSERT_FALSE(object.ok());
  EXPECT_EQ(object.error().code, ErrorCode::internal);
  EXPECT_NE(object.error().message.find("bad_kernel.cc:2:10: error:"), std::string::npos) << object.error().message;
  EXPECT_NE(object.error().message.find("return missing_name;"), std::string::npos) << object.error().message;
  EXPECT_TRUE(compile_cpp({.source = kAdd}).ok());  // the next one is right
}

TEST(Compile, UnknownCpuIsAnError) { EXPECT_FALSE(compile_cpp({.source = kAdd, .cpu = "x86-64-v9"}).ok()); }
TEST(Compile, UnknownFlagIsAnError) { EXPECT_FALSE(compile_cpp({.source = kAdd, .flags = {"-no-such-flag"}}).ok()); }

TEST(Compile, SeesNoSystemHeaders) {
  EXPECT_FALSE(compile_cpp({.source = "#include <stdio.h>\n"}).ok());
  EXPECT_FALSE(compile_cpp({.source = "#include <vector>\n"}).ok());
  EXPECT_FALSE(compile_cpp({.source = "#include \"/etc/passwd\"\n"}).ok());
}

TEST(Compile, SeesDefinesAndHeaders) {
  const CompileRequest request{.source =
                                   "#include \"my/part.h\"\n#include <stdint.h>\n#include <stddef.h>\n"
                                   "static_assert(VALUE == 7 && part() == 3 && sizeof(int64_t) == 8 && sizeof(size_t) == 8);\n"
                                   "static_assert(COIL_ISA_V3 == 1);",
                               .defines = {"VALUE=7"},
                               .headers = {{"my/part.h", "constexpr int part() { return 3; }\n"}}};
  const Result<Bytes> object = compile_cpp(request);
  EXPECT_TRUE(object.ok()) << object.error().to_string();
}

TEST(Compile, SeesTheModelInterface) {
  for (const char* include : {"device/model_abi.h", "model_abi.h", "device/kernels.h"}) {
    const Result<Bytes> object = compile_cpp({.source = "#include \"" + std::string(include) + "\"\nint n = sizeof(CoilModel);\n"});
    EXPECT_TRUE(object.ok()) << object.error().to_string();
  }
}

// The headers of device/ that generated code includes are complete by themselves, for every instruction set.
TEST(Compile, DeviceHeadersStandAlone) {
  for (const EmbeddedFile& file : embedded_files()) {
    const bool part_of_simd = file.path == "device/convert.h" || file.path.starts_with("device/simd_");
    // Of one machine alone.
    const bool machines_own = std::any_of(host_machines().begin(), host_machines().end(), [&](const HostMachine& m) {
      std::string folder(m.name);
      std::replace(folder.begin(), folder.end(), '-', '_');
      return file.path.starts_with("device/" + folder + "/");
    });
    // The adapter's, the library caches and what asks the system for memory are compiled with coil, not with models; those for CUDA have their own test
    // (nvrtc_test.cc).
    const bool elsewhere = file.path.starts_with("device/aoti_") || file.path.starts_with("device/cuda/") || file.path == "device/cuda_plans.h" ||
                           file.path.starts_with("device/onednn_") || file.path == "device/huge_pages.h";
    if (!file.path.ends_with(".h") || part_of_simd || machines_own || elsewhere) continue;
    for (const HostMachine& machine : host_machines()) {
      for (const HostLevel& level : machine.levels) {
        const Result<Bytes> object =
            compile_cpp({.source = "#include \"" + std::string(file.path) + "\"\n", .cpu = std::string(level.full_name), .opt_level = 1});
        EXPECT_TRUE(object.ok()) << level.full_name << ", " << file.path << ": " << object.error().to_string();
      }
    }
  }
}

// Whatever the machine, an object is for it, and a library of it has its number and segments for its largest pages.
TEST(Compile, ForEveryMachine) {
  for (const HostMachine& machine : host_machines()) {
    for (const HostLevel& level : machine.levels) {
      const Result<Bytes> object = compile_cpp({.source = kAdd, .cpu = std::string(level.full_name)});
      ASSERT_TRUE(object.ok()) << object.error().to_string();
      const std::vector<uint8_t> data = data_object(machine, "blob", std::vector<uint8_t>(100, 7));
      const auto library = link_shared({.machine = &machine, .inputs = {{"k", object.value()}, {"d", data}}, .exports = {"add"}, .needed = {"libc.so.6"}});
      ASSERT_TRUE(library.ok()) << library.error().to_string();
      for (const std::vector<uint8_t>* elf : {&object.value(), &data, &library.value()}) {
        Elf64_Ehdr header;
        std::memcpy(&header, elf->data(), sizeof header);
        EXPECT_EQ(header.e_machine, machine.elf_machine) << level.full_name;
        for (uint16_t i = 0; i < header.e_phnum; ++i) {
          Elf64_Phdr segment;
          std::memcpy(&segment, elf->data() + header.e_phoff + i * sizeof segment, sizeof segment);
          EXPECT_TRUE(segment.p_type != PT_LOAD || segment.p_align == static_cast<uint64_t>(machine.most_page_size)) << level.full_name;
        }
      }
    }
  }
}

// The text of one machine's kernel does not get another's parsed headers, and each level's names differ.
TEST(Compile, LevelsHaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const HostMachine& machine : host_machines()) {
    EXPECT_EQ(machine_of_elf(machine.elf_machine), &machine);
    EXPECT_EQ(find_level(machine.base.full_name).machine, &machine);
    for (const HostLevel& level : machine.levels) {
      EXPECT_TRUE(names.insert(level.name).second) << level.name;
      EXPECT_EQ(find_level(level.full_name).level, &level);
      EXPECT_FALSE(embedded_objects(machine).empty());
    }
  }
  EXPECT_EQ(find_level("x86-64-v9").machine, nullptr);
}

TEST(Compile, NaNsSurvive) {
  const Result<std::string> text = compile_to_assembly({.source = "bool f(float x) { return x != x; }"});
  ASSERT_TRUE(text.ok());
  EXPECT_NE(text.value().find("ucomiss"), std::string::npos);  // fast-math would give a constant
}

TEST(Compile, SeveralAtOnce) {
  std::vector<std::thread> threads;
  std::vector<int> good(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &good] {
      for (int i = 0; i < 5; ++i) good[static_cast<size_t>(t)] += compile_cpp({.source = kAdd, .defines = {"T=" + std::to_string(t)}}).ok();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, std::vector<int>(4, 5));
}

TEST(CompileAll, EqualRequestsOnceInOrder) {
  std::vector<CompileRequest> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back({.name = "k" + std::to_string(i), .source = "int f() { return " + std::to_string(i % 2) + "; }"});
  }
  size_t calls = 0, last = 0;
  const auto objects = compile_all(requests, 2, [&](size_t done, size_t total, std::string_view name) {
    ++calls;
    last = done;
    EXPECT_EQ(total, 6u);
    EXPECT_FALSE(name.empty());
  });
  ASSERT_TRUE(objects.ok());
  EXPECT_EQ(calls, 2u);
  EXPECT_EQ(last, 6u);
  ASSERT_EQ(objects.value().size(), 6u);
  EXPECT_EQ(objects.value()[0], objects.value()[4]);
  EXPECT_EQ(objects.value()[1], objects.value()[3]);
  EXPECT_NE(objects.value()[0], objects.value()[1]);
}

TEST(CompileAll, GivesTheFirstError) {
  const std::vector<CompileRequest> requests = {
      {.name = "good", .source = "int x;"}, {.name = "first_bad", .source = "int y"}, {.name = "second_bad", .source = "int z = w;"}};
  const auto objects = compile_all(requests, 2);
  ASSERT_FALSE(objects.ok());
  EXPECT_NE(objects.error().message.find("first_bad"), std::string::npos);
  EXPECT_TRUE(compile_all({}, 2).ok());
}

TEST(CompileKey, TellsRequestsApart) {
  const CompileRequest base{.source = "int x;"};
  CompileRequest other = base;
  other.name = "other";
  EXPECT_EQ(compile_key(base), compile_key(other));  // the name is not in the object
  other.cpu = "x86-64-v4";
  EXPECT_NE(compile_key(base), compile_key(other));
  other = base;
  other.defines = {"A"};
  EXPECT_NE(compile_key(base), compile_key(other));
}

TEST(Compile, NameIsNotInTheObject) {
  const Result<Bytes> a = compile_cpp({.name = "a.cc", .source = kAdd}), b = compile_cpp({.name = "longer.cc", .source = kAdd});
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a.value(), b.value());
}

}  // namespace
}  // namespace coil::toolchain
