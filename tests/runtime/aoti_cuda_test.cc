// The AOTInductor adapter of a CUDA package, on a fake libtorch and the fake driver.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "fake_cuda.h"
#include "fake_torch.h"
#include "fixture.h"

namespace coil::runtime_test {
namespace {

template <class F>
F function(void* library, const char* name) {
  const auto f = reinterpret_cast<F>(dlsym(library, name));
  EXPECT_NE(f, nullptr) << name;
  return f;
}
template <class... A>
int32_t cu(const char* name, A... arguments) {
  return function<int32_t (*)(A...)>(RTLD_DEFAULT, name)(arguments...);
}

FakeCounts counts() {
  FakeCounts c;
  cu("fake_cuda_counts", &c);
  return c;
}

// Sets the thread's current device, as a caller with libtorch does; -1: none.
void set_device(int32_t device) {
  void* context = nullptr;
  if (device >= 0) {
    cu("cuDevicePrimaryCtxRetain", &context, device);
    cu("cuDevicePrimaryCtxRelease_v2", device);
  }
  cu("cuCtxSetCurrent", context);
}

class AotiCuda : public testing::Test {
 protected:
  void SetUp() override {
    fake_driver();
    torch_ = function<FakeTorchStateFn>(fake_torch(), "fake_torch_state")();
    *torch_ = {};
    cu("fake_cuda_configure", 2, 90, int64_t{1} << 30);
    set_device(-1);
    before_ = counts();
  }
  void TearDown() override {
    if (container_) {
      EXPECT_EQ(function<int32_t (*)(void*)>(library_, "AOTInductorModelContainerDelete")(container_), 0);
    }
    set_device(0);
    for (float* x : x_) cu("cuMemFree_v2", reinterpret_cast<uint64_t>(x));
    set_device(-1);
    if (library_) dlclose(library_);
    const FakeCounts after = counts();
    EXPECT_EQ(after.device_bytes, before_.device_bytes);
    EXPECT_EQ(after.host_bytes, before_.host_bytes);
    EXPECT_EQ(after.modules, before_.modules);
    EXPECT_EQ(after.contexts, before_.contexts);
    EXPECT_EQ(after.events, before_.events);
    EXPECT_EQ(torch_->handles, 0);
  }

  // Unpacks the package as libtorch does, and loads it.
  int32_t load(const char* device, const std::string& flags = "") {
    write_file("m.wrapper.constants", constants_of("CUDA"));
    const std::string so = write_file("m.wrapper.so", shared_object("CUDA", flags));
    library_ = dlopen(so.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library_, nullptr) << dlerror();
    using Create = int32_t (*)(void**, size_t, const char*, const char*);
    return function<Create>(library_, "AOTInductorModelContainerCreateWithDevice")(&container_, 1, device, nullptr);
  }
  std::string error() {
    const char* text = nullptr;
    function<int32_t (*)(const char**)>(library_, "AOTInductorGetLastError")(&text);
    return text;
  }
  // A batch of four; x and ids on device 0, unless the description says otherwise.
  int32_t run(void* stream, int64_t id = 3, int32_t described = 0) {
    const auto tensor = function<FakeTorchTensorFn>(fake_torch(), "fake_torch_tensor");
    set_device(actual_device_);
    uint64_t block = 0;
    cu("cuMemAlloc_v2", &block, size_t{96});
    float* x = reinterpret_cast<float*>(block);
    x_.push_back(x);
    int64_t* ids = reinterpret_cast<int64_t*>(x + 16);
    for (int i = 0; i < 16; i++) x[i] = static_cast<float>(i);
    for (int i = 0; i < 4; i++) ids[i] = id;
    set_device(torch_->current_device);
    static int64_t n = 2;
    const int64_t sizes[] = {4, 4};
    void* inputs[] = {tensor(x, sizes, 2, COIL_DTYPE_FLOAT32, 1, described), tensor(ids, sizes, 1, COIL_DTYPE_INT64, 1, described),
                      tensor(&n, nullptr, 0, COIL_DTYPE_INT64, 0, -1)};
    using Run = int32_t (*)(void*, void**, size_t, void**, size_t, void*, void*);
    output_ = nullptr;
    const int32_t failed = function<Run>(library_, "AOTInductorModelContainerRun")(container_, inputs, 3, &output_, 1, stream, nullptr);
    for (void* input : inputs) EXPECT_EQ(input, nullptr);
    return failed;
  }
  // The output's first element, once the stream is done; deletes the output.
  float take_output(void* stream, int32_t device = 0) {
    void* data = nullptr;
    function<int32_t (*)(void*, void**)>(fake_torch(), "aoti_torch_get_data_ptr")(output_, &data);
    int32_t index = -1;
    function<int32_t (*)(void*, int32_t*)>(fake_torch(), "aoti_torch_get_device_index")(output_, &index);
    EXPECT_EQ(index, device);
    set_device(device);
    EXPECT_EQ(cu("cuStreamSynchronize", stream), 0);
    const float value = *static_cast<float*>(data);
    function<int32_t (*)(void*)>(fake_torch(), "aoti_torch_delete_tensor_object")(output_);
    return value;
  }
  void* make_stream(int32_t device) {
    void* stream = nullptr;
    set_device(device);
    cu("cuStreamCreate", &stream, uint32_t{0});
    set_device(torch_->current_device);
    return stream;
  }

  FakeTorch* torch_ = nullptr;
  void* library_ = nullptr;
  void* container_ = nullptr;
  void* output_ = nullptr;
  int32_t actual_device_ = 0;
  std::vector<float*> x_;
  FakeCounts before_;
};

TEST_F(AotiCuda, RunsOnTheCallersStream) {
  ASSERT_EQ(load("cuda"), 0) << error();
  void* const stream = make_stream(0);
  torch_->streams[0] = stream;
  const int64_t host = counts().host_bytes;
  ASSERT_EQ(run(stream), 0) << error();
  EXPECT_EQ(torch_->guards, 0);  // it is the current one
  EXPECT_EQ(torch_->allocated_on, stream);
  EXPECT_EQ(take_output(stream), 0 * 2 + 1 + 12);
  // Another stream than libtorch's current one: memory is taken in its order.
  void* const other = make_stream(0);
  ASSERT_EQ(run(other), 0) << error();
  EXPECT_EQ(torch_->guards, 1);
  EXPECT_EQ(torch_->allocated_on, other);
  EXPECT_EQ(torch_->streams[0], stream);
  EXPECT_EQ(take_output(other), 13);
  EXPECT_EQ(counts().host_bytes, host);
}

TEST_F(AotiCuda, FaultInTheDataComesWithTheNextCall) {
  ASSERT_EQ(load("cuda:0"), 0) << error();
  ASSERT_EQ(run(nullptr, 8), 0) << error();
  take_output(nullptr);
  EXPECT_EQ(run(nullptr), 1);
  EXPECT_NE(error().find("COIL-E210: an earlier call of this model: an index is out of range in gather (model.py:4)"), std::string::npos) << error();
  ASSERT_EQ(run(nullptr), 0) << error();
  EXPECT_EQ(take_output(nullptr), 13);
}

TEST_F(AotiCuda, OtherDevicesThanTheCurrentOne) {
  ASSERT_EQ(load("cuda:1"), 0) << error();
  EXPECT_EQ(run(nullptr, 3, 0), 1);
  EXPECT_NE(error().find("input 'x' (0) is on cuda:0, the model is on cuda:1"), std::string::npos) << error();
  void* const of_0 = make_stream(0);
  void* const of_1 = make_stream(1);
  torch_->streams[0] = of_0, torch_->streams[1] = of_1;
  actual_device_ = 1;
  ASSERT_EQ(run(of_0, 3, 1), 0) << error();  // libtorch hands over device 0's current stream
  EXPECT_EQ(torch_->allocated_on, of_1);
  void* current = nullptr;
  cu("cuCtxGetCurrent", &current);
  set_device(0);
  void* expected = nullptr;
  cu("cuCtxGetCurrent", &expected);
  EXPECT_EQ(current, expected);  // not ours to change
  EXPECT_EQ(take_output(of_1, 1), 13);
  void* const more = make_stream(1);
  ASSERT_EQ(run(more, 3, 1), 0) << error();  // a stream of the model's device that the caller chose is kept
  EXPECT_EQ(torch_->allocated_on, more);
  EXPECT_EQ(take_output(more, 1), 13);
}

TEST_F(AotiCuda, StateFollowsTheCallsOnAllStreams) {
  ASSERT_EQ(load("cuda", "-DSTATE"), 0) << error();
  void* const a = make_stream(0);
  void* const b = make_stream(0);
  std::vector<void*> outputs;
  for (void* stream : {a, b, a}) {
    ASSERT_EQ(run(stream), 0) << error();
    outputs.push_back(output_);
  }
  ASSERT_EQ(run(b), 0) << error();
  EXPECT_EQ(take_output(b), 13 + 103);
  for (int i = 2; i >= 0; i--) {
    output_ = outputs[static_cast<size_t>(i)];
    EXPECT_EQ(take_output(i == 1 ? b : a), 13 + 100 + static_cast<float>(i));
  }
}

// libtorch gives each call memory of its own: inputs and outputs move from call to call.
TEST_F(AotiCuda, RepeatedCallsAsGraphs) {
  setenv("COIL_CUDA_GRAPHS", "2", 1);
  const int32_t failed = load("cuda", "-DSTATE");
  unsetenv("COIL_CUDA_GRAPHS");
  ASSERT_EQ(failed, 0) << error();
  void* const stream = make_stream(0);
  torch_->streams[0] = stream;
  std::vector<void*> outputs;
  for (int i = 0; i < 10; i++) {
    ASSERT_EQ(run(stream), 0) << error();
    outputs.push_back(output_);  // kept: the next one lies elsewhere
  }
  EXPECT_EQ(counts().launches - before_.launches, 4 * 3);
  EXPECT_EQ(counts().graph_launches - before_.graph_launches, 6);
  EXPECT_GT(counts().changed_nodes, before_.changed_nodes);
  for (size_t i = 0; i < outputs.size(); i++) {
    output_ = outputs[i];
    EXPECT_EQ(take_output(stream), 13 + 100 + static_cast<float>(i));
  }
}

TEST_F(AotiCuda, LoadErrors) {
  EXPECT_EQ(load("cuda:7"), 1);
  EXPECT_NE(error().find("COIL-E307: there is no device cuda:7"), std::string::npos) << error();
  dlclose(library_);
  EXPECT_EQ(load("cpu"), 1);
  EXPECT_NE(error().find("COIL-E303: the package was compiled for CUDA, not for 'cpu'"), std::string::npos) << error();
  dlclose(library_);
  cu("fake_cuda_configure", 2, 100, int64_t{1} << 30);
  EXPECT_EQ(load("cuda"), 1);
  EXPECT_NE(error().find("COIL-E303: the package holds CUDA code for sm_90; device cuda:0 is Fake GPU, sm_100"), std::string::npos) << error();
  dlclose(library_);
  cu("fake_cuda_configure", 2, 90, int64_t{100});
  EXPECT_EQ(load("cuda"), 1);
  EXPECT_NE(error().find("COIL-E401: no memory for 192 bytes of weights"), std::string::npos) << error();
}

}  // namespace
}  // namespace coil::runtime_test
