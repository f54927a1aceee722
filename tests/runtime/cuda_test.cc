// Models on CUDA, through the C and C++ API, on the fake driver: memory, streams, state, several devices.
#include <cstring>
#include <thread>

#include "cuda_calls.h"

namespace coil::runtime_test {
namespace {

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

}  // namespace
}  // namespace coil::runtime_test
