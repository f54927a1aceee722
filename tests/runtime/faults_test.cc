// Memory, threads, mappings and files that are not to be had: every single one of a program's way through the C API fails once, and all
// from each on. Nothing aborts; what fails says COIL-E4xx (or that the package cannot be loaded or read), and the next call is right.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <atomic>
#include <fstream>
#include <thread>

#include "allocations.h"
#include "fixture.h"
#include "runtime/thread_pool.h"

namespace coil::runtime_test {
namespace {

// One way through the API. `status` sees what each call returned.
struct Program {
  explicit Program(std::string model) : path(write_file(model + "_faults.pt2", package(model))), masked(model == "MASKED") {
    large.emplace_back(40), large.emplace_back(3);
  }

  template <class F>
  void run(F status) {
    coil_model* model = nullptr;
    const coil_options options = {.struct_bytes = sizeof options, .num_threads = 3};
    if (status(coil_open(path.c_str(), &options, &model)) != COIL_OK) return;
    coil_tensor_info info;
    for (int32_t i = 0; i <= coil_num_inputs(model); i++) status(coil_input_info(model, i, &info));  // one too many
    coil_context* context = nullptr;
    if (status(coil_context_create(model, &context)) == COIL_OK) {
      if (masked) run_masked(context, status);
      else run_late(context, status);
      status(coil_synchronize(context));
      coil_context_destroy(context);
    }
    status(coil_reset_state(model));
    void* data = nullptr;
    if (status(coil_alloc(model, 100, &data)) == COIL_OK) coil_free(model, data);
    coil_close(model);
  }

  template <class F>
  void run_masked(coil_context* context, F status) {
    coil_tensor outputs[2] = {}, told[2] = {};
    for (MaskedCall& call : large) {
      const std::vector<coil_tensor>& inputs = views_of(call);
      status(coil_infer(context, inputs.data(), 3, told, 2));
      if (status(coil_run(context, inputs.data(), 3, outputs, 2)) == COIL_OK) wrong += call.compare(outputs) != "";
      status(coil_run(context, inputs.data(), 2, outputs, 2));  // a wrong one, whose text wants memory
    }
  }

  template <class F>
  void run_late(coil_context* context, F status) {
    coil_tensor outputs[2] = {};
    for (int64_t n : {100, 4000}) {
      const coil_tensor input = {x.data(), &n, nullptr, 1, COIL_DTYPE_FLOAT32};
      if (status(coil_run(context, &input, 1, outputs, 2)) != COIL_OK) continue;
      wrong += outputs[0].sizes[0] != n / 2 || static_cast<float*>(outputs[0].data)[n / 2 - 1] != 1 || static_cast<float*>(outputs[1].data)[n - 1] != -2;
    }
  }

  // Without memory of the test's own while faults are on.
  const std::vector<coil_tensor>& views_of(MaskedCall& call) {
    const size_t i = static_cast<size_t>(&call - large.data());
    if (kept.size() < 2) kept = {large[0].views(), large[1].views()};
    return kept[i];
  }

  std::string path;
  bool masked;
  std::vector<MaskedCall> large;
  std::vector<std::vector<coil_tensor>> kept;
  std::vector<float> x = [] {
    std::vector<float> values(4096);
    for (size_t i = 0; i < values.size(); i++) values[i] = i % 2 ? -1.0f : 1.0f;
    return values;
  }();
  int wrong = 0;
};

bool is_expected(Fault kind, coil_status status) {
  if (status == COIL_OK || status == 201 || status == 208) return true;  // 201, 208: of the wrong calls
  if (kind == Fault::allocation) return status == 401;
  return status == 401 || status == 304 || status == 2;  // no map, no file
}

class Faults : public ::testing::TestWithParam<std::tuple<const char*, Fault, bool>> {};

TEST_P(Faults, EachOnce) {
  if (!COIL_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer has the allocator";
  const auto [model, kind, onwards] = GetParam();
  Program program(model);
  int good = 0;
  program.run([&](coil_status s) { return good += s == COIL_OK, s; });  // what is made once in a process is made now
  const int all_good = good;
  long n = 1, failed = 0;
  for (;; n++) {
    ASSERT_LT(n, 20000);
    coil_status bad = 0;
    int refused = 0;
    fail(kind, n, onwards);
    program.run([&](coil_status s) { return refused += s == 401, bad = is_expected(kind, s) ? bad : s, s; });
    const long failures = count_failures();
    fail(Fault::none, 0, false);
    if (!failures) break;
    failed += refused > 0;
    ASSERT_EQ(bad, 0) << "call " << n << ": " << coil_last_error();
    ASSERT_EQ(program.wrong, 0) << n;
    if (n % 8) continue;
    good = 0;
    program.run([&](coil_status s) { return good += s == COIL_OK, s; });
    ASSERT_EQ(good, all_good) << "after the failure of call " << n << ": " << coil_last_error();
    ASSERT_EQ(program.wrong, 0) << n;
  }
  RecordProperty("failed", static_cast<int>(n - 1));
  EXPECT_GE(n - 1, kind == Fault::allocation ? 100 : kind == Fault::thread ? 2 * program.masked : 1);  // the faults were met
  EXPECT_GT(failed, kind == Fault::allocation ? 50 : -1);                                              // and told
}

INSTANTIATE_TEST_SUITE_P(All, Faults,
                         ::testing::Combine(::testing::Values("MASKED", "LATE"),
                                            ::testing::Values(Fault::allocation, Fault::thread, Fault::mapping, Fault::file), ::testing::Bool()));

// A thread whose first error cannot be kept has words of its own.
TEST(Faults, ErrorsWithoutMemory) {
  if (!COIL_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer has the allocator";
  std::string text;
  coil_status status = 0;
  text.reserve(200);
  auto main = [&] {
    coil_model* model = nullptr;
    fail(Fault::allocation, 1, true);
    status = coil_open("nowhere", nullptr, &model);
    text = coil_last_error();
    fail(Fault::none, 0, false);
  };
  std::thread(main).join();
  EXPECT_EQ(status, 401);
  EXPECT_EQ(text, "COIL-E401: no memory (and none to say more about it)");
}

char* page = nullptr;
void mend_page(int, siginfo_t*, void*) { mprotect(page, 4096, PROT_READ | PROT_WRITE); }

// A fault in a worker reaches the handlers of the host (which may mend it, or print where it was).
TEST(Signals, FaultsInWorkersReachTheHost) {
  const pid_t child = fork();
  if (child == 0) {
    page = static_cast<char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    struct sigaction action = {};
    action.sa_sigaction = mend_page;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    runtime::ThreadPool pool(2);
    std::atomic<int> inside{0};
    // Both threads are in the loop at once; the worker writes to the page.
    auto body = [](void* context, int64_t begin, int64_t end, int32_t worker) {
      auto& count = *static_cast<std::atomic<int>*>(context);
      for (int64_t i = begin; i < end; i++) {
        count++;
        while (count < 2) usleep(100);
        if (worker) *static_cast<volatile char*>(page) = 1;
      }
    };
    pool.parallel_for(2, 1, body, &inside);
    _exit(*page == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

struct Held {
  size_t files = 0, mappings = 0;
  long kilobytes = 0;
};
Held held() {
  Held h;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) h.files++;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) h.mappings++;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) h.kilobytes = std::atol(line.c_str() + 6);
  }
  return h;
}

void call_once(coil_model* model) {
  coil_context* context = nullptr;
  ASSERT_EQ(coil_context_create(model, &context), COIL_OK) << coil_last_error();
  MaskedCall call(5);
  coil_tensor outputs[2] = {};
  ASSERT_EQ(coil_run(context, call.views().data(), 3, outputs, 2), COIL_OK) << coil_last_error();
  EXPECT_EQ(call.compare(outputs), "");
  coil_context_destroy(context);
}

// Packages of different code: what follows the end of a shared object is part of its bytes and means nothing.
std::string variant(int i) {
  std::vector<Entry> entries = entries_of("MASKED");
  entry(entries, ".so").data += "variant " + std::to_string(i);
  return pack(entries);
}

TEST(Opening, LeavesNothing) {
  const std::string path = write_file("opened.pt2", package("MASKED"));
  const std::string others[] = {write_file("other0.pt2", variant(0)), write_file("other1.pt2", variant(1))};
  const auto round = [&](int i) {
    coil_model* model = open_or_fail(i % 3 ? others[i % 2] : path);
    call_once(model);
    coil_close(model);
  };
  for (int i = 0; i < 100; i++) round(i);
  const Held before = held();
  for (int i = 0; i < 1000; i++) round(i);
  const Held after = held();
  EXPECT_EQ(after.files, before.files);
  EXPECT_LE(after.mappings, before.mappings + (COIL_COUNTS_ALLOCATIONS ? 4 : 100));         // of the C library's heap; a sanitizer's keeps what is freed
  EXPECT_LE(after.kilobytes, before.kilobytes + (COIL_COUNTS_ALLOCATIONS ? 2048 : 65536));  // a sanitizer keeps what is freed for a while
}

TEST(Calls, LeaveNothing) {
  const char* wish = std::getenv("COIL_FUZZ_CALLS");
  const int calls = wish ? std::atoi(wish) : 30000;
  coil_model* model = open_or_fail(write_file("calls.pt2", package("MASKED")));
  coil_context* context = nullptr;
  ASSERT_EQ(coil_context_create(model, &context), COIL_OK);
  std::vector<MaskedCall> made;
  std::vector<std::vector<coil_tensor>> inputs;
  made.reserve(64);
  for (int64_t batch = 1; batch <= 64; batch++) inputs.push_back(made.emplace_back(batch).views());
  coil_tensor outputs[2] = {};
  Held before;
  int refused = 0;
  for (int i = 0; i < calls; i++) {
    if (i == calls / 3) before = held();
    const auto at = static_cast<size_t>(i) * 37 % 64;
    refused += coil_run(context, inputs[at].data(), i % 50 ? 3 : 2, outputs, 2) != COIL_OK;
  }
  const Held after = held();
  EXPECT_EQ(refused, (calls + 49) / 50);
  EXPECT_EQ(after.files, before.files);
  EXPECT_LE(after.mappings, before.mappings + (COIL_COUNTS_ALLOCATIONS ? 1 : 100));
  EXPECT_LE(after.kilobytes, before.kilobytes + (COIL_COUNTS_ALLOCATIONS ? 256 : 65536));
  coil_context_destroy(context);
  coil_close(model);
}

TEST(Opening, ManyAtOnce) {
  const std::string path = write_file("many.pt2", package("MASKED"));
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t soft = limit.rlim_cur;
  limit.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  const size_t before = held().files;
  std::vector<coil_model*> models;
  for (int i = 0; i < 5000; i++) models.push_back(open_or_fail(path));
  for (int i = 0; i < 200; i++) {
    const std::string bytes = variant(i);
    coil_model* model = nullptr;
    ASSERT_EQ(coil_open_memory(bytes.data(), bytes.size(), nullptr, &model), COIL_OK) << coil_last_error();
    call_once(model);  // (the bytes may go once nothing uses the constants)
    coil_close(model);
    models.push_back(open_or_fail(write_file("variant.pt2", bytes)));
    std::filesystem::remove(temp_folder() + "/variant.pt2");  // the next is another file, not another content of this one
  }
  EXPECT_EQ(held().files, before);
  for (size_t i = 0; i < models.size(); i += 97) call_once(models[i]);
  for (coil_model* model : models) coil_close(model);
  limit.rlim_cur = soft;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
}  // namespace coil::runtime_test
