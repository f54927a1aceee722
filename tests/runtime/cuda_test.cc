// Models on CUDA, through the C and C++ API, on the fake driver: memory, streams, state, faults in the data, several devices.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "coil/coil.hpp"
#include "fake_cuda.h"
#include "fixture.h"

namespace coil::runtime_test {
namespace {

FakeCounts counts() {
  static const auto get = reinterpret_cast<FakeCountsFn>(dlsym(RTLD_DEFAULT, "fake_cuda_counts"));
  FakeCounts c;
  get(&c);
  return c;
}
void configure(int32_t devices, int32_t sm, int64_t memory) {
  static const auto set = reinterpret_cast<FakeConfigureFn>(dlsym(RTLD_DEFAULT, "fake_cuda_configure"));
  set(devices, sm, memory);
}
void* make_stream() {
  void* stream = nullptr;
  reinterpret_cast<int32_t (*)(void**, uint32_t)>(dlsym(RTLD_DEFAULT, "cuStreamCreate"))(&stream, 0);
  return stream;
}
// The thread's current context, as a library beside us sees it.
void* current_context() {
  void* context = nullptr;
  reinterpret_cast<int32_t (*)(void**)>(dlsym(RTLD_DEFAULT, "cuCtxGetCurrent"))(&context);
  return context;
}
void set_context(int32_t device) {
  void* context = nullptr;
  if (device >= 0) {
    reinterpret_cast<int32_t (*)(void**, int32_t)>(dlsym(RTLD_DEFAULT, "cuDevicePrimaryCtxRetain"))(&context, device);
    reinterpret_cast<int32_t (*)(int32_t)>(dlsym(RTLD_DEFAULT, "cuDevicePrimaryCtxRelease_v2"))(device);
  }
  reinterpret_cast<int32_t (*)(void*)>(dlsym(RTLD_DEFAULT, "cuCtxSetCurrent"))(context);
}

std::string package_path(const std::string& flags = "") {
  return write_file("cuda" + std::to_string(std::hash<std::string>()(flags)) + ".pt2", package("CUDA", flags));
}

// The inputs of one call, on the CPU and on the model's device, and what it computes.
struct Call {
  Call(const Model& m, Context& c, int64_t rows, int64_t times = 2) : model(m), batch(rows), n(times), x(m, bytes()), ids(m, id_bytes()) {
    for (int64_t i = 0; i < batch * 4; i++) host_x.push_back(static_cast<float>(i % 13));
    for (int64_t i = 0; i < batch; i++) host_ids.push_back(i % 8);
    upload(c);
  }
  size_t bytes() const { return static_cast<size_t>(batch) * 16; }
  size_t id_bytes() const { return static_cast<size_t>(batch) * 8; }
  void upload(Context& c) {
    c.copy_to_device(x.data(), host_x.data(), bytes());
    c.copy_to_device(ids.data(), host_ids.data(), id_bytes());
  }
  std::vector<Tensor> tensors() {
    return {Tensor(x.data(), COIL_DTYPE_FLOAT32, {batch, 4}).on(model), Tensor(ids.data(), COIL_DTYPE_INT64, {batch}).on(model), Tensor(&n, {})};
  }
  // "" or what differs, after copying y out.
  std::string compare(Context& c, const Tensor& y, float count = 0) {
    if (y.sizes() != std::vector<int64_t>{batch, 4}) return "wrong shape";
    if (y.on_cpu() || y.device_index() != model.device_index()) return "wrong device";
    std::vector<float> got(static_cast<size_t>(batch) * 4);
    c.copy_from_device(got.data(), y.data(), bytes());
    for (size_t i = 0; i < got.size(); i++) {
      const float want = host_x[i] * static_cast<float>(n) + 1 + static_cast<float>(host_ids[i / 4] * 4 + static_cast<int64_t>(i % 4)) + count;
      if (got[i] != want) return "element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not " + std::to_string(want);
    }
    return "";
  }

  Model model;
  int64_t batch, n;
  std::vector<float> host_x;
  std::vector<int64_t> host_ids;
  DeviceMemory x, ids;
};

// Runs f and returns the error that it throws, or 0.
template <class F>
int code_of(F f, std::string* text = nullptr) {
  try {
    f();
    return 0;
  } catch (const Exception& e) {
    if (text) *text = e.what();
    return e.code();
  }
}

class Cuda : public testing::Test {
 protected:
  static void SetUpTestSuite() { fake_driver(); }
  void SetUp() override {
    configure(2, 90, int64_t{1} << 30);
    set_context(-1);
    before_ = counts();
  }
  void TearDown() override {
    const FakeCounts after = counts();  // nothing is left behind
    EXPECT_EQ(after.device_bytes, before_.device_bytes);
    EXPECT_EQ(after.host_bytes, before_.host_bytes);
    EXPECT_EQ(after.modules, before_.modules);
    EXPECT_EQ(after.contexts, before_.contexts);
    EXPECT_EQ(after.events, before_.events);
    EXPECT_EQ(current_context(), nullptr);
  }
  FakeCounts before_;
};

TEST_F(Cuda, RunsAndEnqueuesOnly) {
  EXPECT_EQ(coil_cuda_device_count(), 2);
  const Model model(package_path());
  EXPECT_EQ(model.device_type(), COIL_DEVICE_CUDA);
  EXPECT_EQ(model.isa(), "sm_90");
  EXPECT_EQ(model.inputs()[0].device_type, COIL_DEVICE_CUDA);
  EXPECT_EQ(model.inputs()[2].device_type, COIL_DEVICE_CPU);
  Context context(model);
  Call call(model, context, 5);
  const std::vector<Tensor> y = context.run(call.tensors());
  EXPECT_EQ(counts().launches - before_.launches, 2);
  EXPECT_EQ(counts().pending, 2);  // nothing waited
  EXPECT_EQ(call.compare(context, y[0]), "");
  EXPECT_EQ(counts().pending, 0);
  const coil_memory memory = context.memory_of_run();
  EXPECT_EQ(memory.arena_bytes, 80);
  EXPECT_EQ(memory.output_bytes, 80);
  EXPECT_EQ(memory.constant_bytes, 192);
}

TEST_F(Cuda, MemoryGrowsOnceAndIsKept) {
  const Model model(package_path());
  Context context(model);
  Call small(model, context, 3), large(model, context, 900);
  context.run(small.tensors());
  const std::vector<Tensor> y = context.run(large.tensors());
  EXPECT_EQ(large.compare(context, y[0]), "");
  const int64_t allocations = counts().allocations;
  for (int i = 0; i < 5; i++) {
    context.run(large.tensors());
    EXPECT_EQ(small.compare(context, context.run(small.tensors())[0]), "");
  }
  EXPECT_EQ(counts().allocations, allocations);
}

// A graph that was captured knows the addresses that its calls had.
TEST_F(Cuda, MemoryOfACapturedCallStays) {
  const int64_t first = counts().device_bytes;
  {
    const Model model(package_path());
    Context context(model);
    Call small(model, context, 3), large(model, context, 900);
    set_context(0);
    void* stream = make_stream();
    const auto capture = reinterpret_cast<FakeCaptureFn>(dlsym(RTLD_DEFAULT, "fake_cuda_capture"));
    std::vector<Tensor> outputs(1);
    context.run(small.tensors(), outputs, stream);
    capture(stream, 1);
    context.run(small.tensors(), outputs, stream);
    capture(stream, 0);
    const int64_t before = counts().device_bytes;
    std::vector<Tensor> more(1);
    context.run(large.tensors(), more, stream);
    EXPECT_EQ(large.compare(context, more[0]), "");
    const coil_memory memory = context.memory_of_run();
    EXPECT_GE(counts().device_bytes - before, memory.arena_bytes + memory.output_bytes);  // nothing was given up
    context.synchronize();
    reinterpret_cast<int32_t (*)(void*)>(dlsym(RTLD_DEFAULT, "cuStreamDestroy_v2"))(stream);
    set_context(-1);
  }
  EXPECT_EQ(counts().device_bytes, first);
}

TEST_F(Cuda, CallersOutputAndStreams) {
  const Model model(package_path());
  Context context(model);
  Call call(model, context, 7);
  DeviceMemory own(model, call.bytes());
  set_context(0);
  void* const streams[] = {make_stream(), make_stream()};
  void* const theirs = current_context();
  for (int i = 0; i < 6; i++) {  // the same context on streams in turn: its memory is shared
    call.n = i;
    std::vector<Tensor> outputs = {Tensor(own.data(), COIL_DTYPE_FLOAT32, {7, 4}).on(model)};
    context.run(call.tensors(), outputs, streams[i % 2]);
    EXPECT_EQ(outputs[0].data(), own.data());
    if (i % 3 == 2) {
      EXPECT_EQ(call.compare(context, outputs[0]), "");
    }
  }
  context.synchronize();
  EXPECT_EQ(current_context(), theirs);  // not ours to change
  const auto destroy = reinterpret_cast<int32_t (*)(void*)>(dlsym(RTLD_DEFAULT, "cuStreamDestroy_v2"));
  for (void* stream : streams) destroy(stream);
  set_context(-1);
}

TEST_F(Cuda, FaultInTheDataIsTold) {
  const Model model(package_path());
  Context context(model);
  Call bad(model, context, 4), good(model, context, 4);
  bad.host_ids[2] = 8;
  bad.upload(context);
  std::string text;
  context.run(bad.tensors());
  EXPECT_EQ(code_of([&] { context.synchronize(); }, &text), 210);
  EXPECT_NE(text.find("out of range in gather (model.py:4), flag 7"), std::string::npos) << text;
  EXPECT_EQ(good.compare(context, context.run(good.tensors())[0]), "");  // the next valid call is right

  // Not asked after, it comes with the next run that finds it, once.
  context.run(bad.tensors());
  std::vector<float> y(16);
  EXPECT_EQ(code_of([&] { context.copy_from_device(y.data(), bad.x.data(), 64); }), 210);
  void* const data = bad.x.data();
  context.run(bad.tensors());
  Context other(model);
  other.copy_from_device(y.data(), data, 64);  // waits for the same stream, but looks at its own calls
  EXPECT_EQ(code_of([&] { context.run(good.tensors()); }, &text), 210);
  EXPECT_NE(text.find("an earlier call of this context"), std::string::npos) << text;
  EXPECT_EQ(good.compare(context, context.run(good.tensors())[0]), "");
}

TEST_F(Cuda, WrongPlacesReachNoKernel) {
  const Model model(package_path());
  Context context(model);
  Call call(model, context, 4);
  const Model other(package_path(), Options().device("cuda:1"));
  DeviceMemory elsewhere(other, 64);
  std::vector<float> host(16);
  std::string text;
  const auto expect = [&](Tensor x, const char* words) {
    std::vector<Tensor> inputs = call.tensors();
    inputs[0] = x;
    EXPECT_EQ(code_of([&] { context.run(inputs); }, &text), 206);
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  const int64_t launches = counts().launches;
  expect(Tensor(host.data(), {4, 4}), "it is on the CPU, the program takes it on its CUDA device");
  expect(Tensor(host.data(), {4, 4}).on(model), "'x' (0) is on cuda:0 by its description, but its address is that of host memory");
  expect(Tensor(elsewhere.data(), COIL_DTYPE_FLOAT32, {4, 4}).on(other), "'x' (0) is on cuda:1, the model is on cuda:0");
  expect(Tensor(elsewhere.data(), COIL_DTYPE_FLOAT32, {4, 4}).on(model), "'x' (0) is on cuda:1 by its address");
  std::vector<Tensor> outputs = {Tensor(host.data(), {4, 4}).on(model)};
  EXPECT_EQ(code_of([&] { context.run(call.tensors(), outputs); }, &text), 206);
  EXPECT_NE(text.find("output 'y' (0) is on"), std::string::npos) << text;
  outputs = {Tensor(host.data(), {4, 4})};
  EXPECT_EQ(code_of([&] { context.run(call.tensors(), outputs); }), 206);
  EXPECT_EQ(counts().launches, launches);
  EXPECT_EQ(call.compare(context, context.run(call.tensors())[0]), "");
}

TEST_F(Cuda, StateIsOneForAllContextsAndStreams) {
  Model model(package_path("-DSTATE"));
  Context first(model), second(model);
  Call call(model, first, 4);
  set_context(0);
  void* stream = make_stream();
  first.run(call.tensors());
  second.run(call.tensors(), stream);
  first.run(call.tensors());
  EXPECT_EQ(call.compare(second, second.run(call.tensors(), stream)[0], 103), "");
  EXPECT_EQ(call.compare(first, first.run(call.tensors())[0], 104), "");
  model.reset_state();
  EXPECT_EQ(call.compare(first, first.run(call.tensors())[0], 100), "");
  reinterpret_cast<int32_t (*)(void*)>(dlsym(RTLD_DEFAULT, "cuStreamDestroy_v2"))(stream);
  set_context(-1);
}

TEST_F(Cuda, StatesOfTheirOwn) {
  Model model(package_path("-DSTATE"));
  Context first(model), second(model), third(model);
  Call call(model, first, 4);
  State state(model);
  first.use(state);
  EXPECT_EQ(call.compare(first, first.run(call.tensors())[0], 100), "");
  EXPECT_EQ(call.compare(first, first.run(call.tensors())[0], 101), "");
  State fork = state.fork();
  second.use(fork);
  EXPECT_EQ(call.compare(second, second.run(call.tensors())[0], 102), "");
  EXPECT_EQ(call.compare(second, second.run(call.tensors())[0], 103), "");
  EXPECT_EQ(call.compare(first, first.run(call.tensors())[0], 102), "");
  const std::vector<unsigned char> saved = state.save();
  EXPECT_EQ(call.compare(third, third.run(call.tensors())[0], 100), "") << "the model's own";
  State other(model);
  other.restore(saved);
  third.use(other);
  EXPECT_EQ(call.compare(third, third.run(call.tensors())[0], 103), "");
  state.reset();
  EXPECT_EQ(call.compare(first, first.run(call.tensors())[0], 100), "");
}

TEST_F(Cuda, SeveralDevicesAndThreads) {
  const std::string path = package_path();
  const Model models[] = {Model(path, Options().device("cuda:0")), Model(path, Options().device("cuda:1"))};
  EXPECT_EQ(models[1].device_index(), 1);
  std::vector<std::thread> threads;
  std::string wrong[4];
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&, t] {
      const Model& model = models[t % 2];
      Context context(model);
      for (int64_t i = 1; i < 40; i++) {
        Call call(model, context, i, i % 9);
        const std::string text = call.compare(context, context.run(call.tensors())[0]);
        if (!text.empty()) wrong[t] = text;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

TEST_F(Cuda, LargeWeightsComeInChunks) {
  std::vector<Entry> entries = entries_of("CUDA", "-DLARGE");
  std::string& blob = entry(entries, ".constants").data;
  const size_t large = (size_t{21} << 20) + 192;  // see fixture_cuda.cpp
  blob.resize(192);
  blob.resize(large, 'x');
  for (size_t i = 192; i < large; i++) blob[i] = static_cast<char>(i * 2654435761u >> 13);
  const std::string path = write_file("large.pt2", pack(entries));
  const Model model(path);
  Context context(model);
  Call call(model, context, 4);
  EXPECT_EQ(call.compare(context, context.run(call.tensors())[0]), "");
  // The model's table is the last row that a kernel can see; the rest is compared by finding the block of this size.
  std::vector<char> got(large);
  const auto find = reinterpret_cast<const void* (*)(size_t)>(dlsym(RTLD_DEFAULT, "fake_cuda_block"));
  const void* device = find(large);
  ASSERT_NE(device, nullptr);
  context.copy_from_device(got.data(), device, large);
  EXPECT_EQ(std::memcmp(got.data(), blob.data(), large), 0);
}

TEST_F(Cuda, OutOfMemoryNamesAmountAndFormula) {
  std::string text;
  configure(2, 90, 100);
  EXPECT_EQ(code_of([] { Model model(package_path()); }, &text), 401);
  EXPECT_NE(text.find("192 bytes of weights: cuda:0 has 0 MiB free"), std::string::npos) << text;
  configure(2, 90, 32 << 10);
  const Model model(package_path());
  Context context(model);
  Call call(model, context, 900), small(model, context, 5);
  EXPECT_EQ(code_of([&] { context.run(call.tensors()); }, &text), 401);
  EXPECT_NE(text.find("cuda:0 has 0 MiB free of 0 MiB"), std::string::npos) << text;
  EXPECT_EQ(small.compare(context, context.run(small.tensors())[0]), "");
  configure(2, 90, 48 << 10);
  DeviceMemory own(model, call.bytes());
  std::vector<Tensor> outputs = {Tensor(own.data(), COIL_DTYPE_FLOAT32, {900, 4}).on(model)};  // only scratch is wanted
  EXPECT_EQ(code_of([&] { context.run(call.tensors(), outputs); }, &text), 401);
  EXPECT_NE(text.find("scratch space of 14400 bytes, by the formula 16*batch"), std::string::npos) << text;
}

TEST_F(Cuda, FailingKernelIsNamedWhenAsked) {
  std::string text;
  {
    const Model model(package_path("-DBROKEN"));
    Context context(model);
    Call call(model, context, 4);
    context.run(call.tensors());
    EXPECT_EQ(code_of([&] { context.synchronize(); }, &text), 404);
    EXPECT_NE(text.find("unspecified launch failure"), std::string::npos) << text;
    EXPECT_NE(text.find("COIL_CUDA_SYNC=1"), std::string::npos) << text;
    configure(2, 90, 1 << 20);  // forgets the failure
  }
  setenv("COIL_CUDA_SYNC", "1", 1);
  const Model model(package_path("-DBROKEN"));
  unsetenv("COIL_CUDA_SYNC");
  Context context(model);
  Call call(model, context, 4);
  EXPECT_EQ(code_of([&] { context.run(call.tensors()); }, &text), 404);
  EXPECT_NE(text.find("kernel gather (model.py:4) failed"), std::string::npos) << text;
  configure(2, 90, 1 << 20);
}

// A kernel that is not there: the reason is the device's or the package's, and the two are told apart.
TEST_F(Cuda, AbsentKernels) {
  const auto refused = [](const char* flags, int code, const char* expected) {
    const Model model(package_path(flags));
    Context context(model);
    Call call(model, context, 4);
    std::string text;
    EXPECT_EQ(code_of([&] { context.run(call.tensors()); }, &text), code);
    EXPECT_NE(text.find(expected), std::string::npos) << text;
    EXPECT_NE(text.find("kernel hopper (model.py:6)"), std::string::npos) << text;
  };
  refused("-DABSENT=0", 301, "the code that was loaded for sm_90 has no function 'hopper_only': it is of another compilation");
  refused("-DABSENT=1000000", 303, "needs 1000000 bytes of shared memory a block, and cuda:0 (sm_90) has ");
  configure(1, 80, 1 << 20);
  refused("-DABSENT=0 -DSM=80", 303, "needs clusters of 2 blocks, which cuda:0 (sm_80) or its driver does not have");
}

TEST_F(Cuda, WrongDevicesAndArchitectures) {
  std::string text;
  const std::string path = package_path();
  EXPECT_EQ(code_of([&] { Model model(path, Options().device("cuda:2")); }, &text), 307);
  EXPECT_NE(text.find("there is no device cuda:2; the process sees 2 CUDA devices"), std::string::npos) << text;
  EXPECT_EQ(code_of([&] { Model model(path, Options().device("gpu")); }, &text), 402);
  EXPECT_EQ(code_of([&] { Model model(path, Options().device("cuda:x")); }, &text), 402);
  EXPECT_EQ(code_of([&] { Model model(path, Options().device("cpu")); }, &text), 303);
  EXPECT_NE(text.find("the package holds code for cuda (sm_90), not for cpu"), std::string::npos) << text;
  EXPECT_EQ(code_of([&] { Model model(write_file("cpu.pt2", package("ADD_ONE")), Options().device("cuda")); }, &text), 303);
  configure(2, 86, 1 << 20);
  EXPECT_EQ(code_of([&] { Model model(path); }, &text), 303);
  EXPECT_NE(text.find("holds CUDA code for sm_90; device cuda:0 is Fake GPU, sm_86"), std::string::npos) << text;
  configure(2, 86, 1 << 20);
  const Model model(package_path("-DSM=80"));  // a cubin runs on later minors
  EXPECT_EQ(model.isa(), "sm_86");
}

// A package with code for both: the first target that the machine can run, or the one that is asked for.
std::string package_of_both() {
  std::vector<Entry> entries = entries_of("CUDA");
  std::string cpu = shared_object("ADD_ONE");
  entries.push_back({"data/aotinductor/model_cpu/m.wrapper.so", cpu});
  std::string& manifest = entry(entries, "manifest.json").data;
  const std::string target = R"({"device": "cuda", "model": "model", "architectures": ["sm_90"]})";
  manifest.replace(manifest.find(target), target.size(), target + R"(, {"device": "cpu", "model": "model_cpu", "isas": ["v3"]})");
  return write_file("both.pt2", pack(entries));
}

TEST_F(Cuda, FirstTargetThatRuns) {
  const std::string path = package_of_both();
  EXPECT_EQ(Model(path).device_type(), COIL_DEVICE_CUDA);
  std::string text;
  // The CPU's part of this package is another program: that it was tried shows in the error.
  EXPECT_EQ(code_of([&] { Model model(path, Options().device("cpu")); }, &text), 301);
  EXPECT_NE(text.find("the manifest and the code disagree about the inputs"), std::string::npos) << text;
  configure(2, 120, 1 << 20);
  EXPECT_EQ(code_of([&] { Model model(path); }, &text), 301);
}

TEST_F(Cuda, CpuModelsHaveNoStreams) {
  const Model model(write_file("cpu.pt2", package("ADD_ONE")));
  Context context(model);
  std::vector<float> x(10, 1.0f);
  EXPECT_EQ(code_of([&] { context.run({Tensor(x.data(), {10})}, &x); }), 402);
  context.synchronize();
  DeviceMemory memory(model, 40);
  context.copy_to_device(memory.data(), x.data(), 40);
  const std::vector<Tensor> y = context.run({Tensor(static_cast<float*>(memory.data()), {10})});
  context.copy_from_device(x.data(), y[0].data(), 40);
  EXPECT_EQ(x[9], 2.0f);
}

// In a process of its own: the driver is found once.
TEST(CudaDeathTest, NoDriverAndNoDevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string path = package_path();
  const auto attempt = [&](const char* driver, const char* devices, int want) {
    setenv("COIL_CUDA_DRIVER", driver, 1);
    if (devices) setenv("FAKE_CUDA_DEVICES", devices, 1);
    coil_model* model = nullptr;
    const coil_status status = coil_open(path.c_str(), nullptr, &model);
    fprintf(stderr, "%s\n", coil_last_error());
    _exit(status == want && coil_cuda_device_count() == 0 ? 0 : 1);
  };
  EXPECT_EXIT(attempt("/no/such/libcuda.so.1", nullptr, 306), testing::ExitedWithCode(0), "the CUDA driver .* cannot be loaded");
  EXPECT_EXIT(attempt("libm.so.6", nullptr, 306), testing::ExitedWithCode(0), "lacks cuInit");
  EXPECT_EXIT(attempt(fake_driver().c_str(), "0", 307), testing::ExitedWithCode(0), "no CUDA device");
}

}  // namespace
}  // namespace coil::runtime_test
