// What goes wrong with models on CUDA, on the fake driver: faults in the data, arguments elsewhere, memory, kernels, devices and architectures.
#include <cstring>

#include "cuda_calls.h"

namespace coil::runtime_test {
namespace {

using CudaErrors = Cuda;

TEST_F(CudaErrors, FaultInTheDataIsTold) {
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

TEST_F(CudaErrors, WrongPlacesReachNoKernel) {
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

TEST_F(CudaErrors, OutOfMemoryNamesAmountAndFormula) {
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

TEST_F(CudaErrors, FailingKernelIsNamedWhenAsked) {
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
TEST_F(CudaErrors, AbsentKernels) {
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

TEST_F(CudaErrors, WrongDevicesAndArchitectures) {
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

TEST_F(CudaErrors, FirstTargetThatRuns) {
  const std::string path = package_of_both();
  EXPECT_EQ(Model(path).device_type(), COIL_DEVICE_CUDA);
  std::string text;
  // The CPU's part of this package is another program: that it was tried shows in the error.
  EXPECT_EQ(code_of([&] { Model model(path, Options().device("cpu")); }, &text), 301);
  EXPECT_NE(text.find("the manifest and the code disagree about the inputs"), std::string::npos) << text;
  configure(2, 120, 1 << 20);
  EXPECT_EQ(code_of([&] { Model model(path); }, &text), 301);
}

TEST_F(CudaErrors, CpuModelsHaveNoStreams) {
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
