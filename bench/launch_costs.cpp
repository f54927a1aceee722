// What the driver's calls cost the host, and what a graph's nodes cost the device: numbers behind device/cuda_graph.h.
//   g++ -O2 -std=c++20 -I. bench/launch_costs.cpp device/cuda_driver.cc -ldl -lpthread -o launch_costs && ./launch_costs
// Prints JSON: microseconds, the median of several runs. Needs a GPU; nothing else should run on it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "device/cuda_driver.h"

namespace {

// An empty kernel with 512 bytes of parameters, and one with 64.
const char kText[] = R"(.version 7.8
.target sm_80
.address_size 64
.visible .entry large(.param .align 64 .b8 p[512]) { ret; }
.visible .entry small(.param .align 8 .b8 p[64]) { ret; }
)";

const cd::CudaDriver* driver;
void* context;
void* stream;

void check(cd::CudaResult result, const char* what) {
  if (result == cd::kCudaSuccess) return;
  std::fprintf(stderr, "%s: CUresult %d\n", what, result);
  std::exit(1);
}

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Microseconds a call: the least of several rounds of `calls` into an idle queue.
double cost(int calls, const std::function<void()>& call) {
  std::vector<double> times;
  for (int round = 0; round < 15; round++) {
    driver->synchronise_stream(stream);
    const double start = seconds();
    for (int i = 0; i < calls; i++) call();
    times.push_back((seconds() - start) / calls * 1e6);
  }
  driver->synchronise_stream(stream);
  std::nth_element(times.begin(), times.begin() + 7, times.end());
  return times[7];
}

// Microseconds between events around `calls`.
double device_cost(int calls, const std::function<void()>& call) {
  void* events[2];
  for (void*& e : events) check(driver->make_event(&e, 0), "event");
  std::vector<double> times;
  for (int round = 0; round < 9; round++) {
    driver->record_event(events[0], stream);
    for (int i = 0; i < calls; i++) call();
    driver->record_event(events[1], stream);
    driver->synchronise_event(events[1]);
    float ms = 0;
    driver->elapsed(&ms, events[0], events[1]);
    times.push_back(ms * 1e3 / calls);
  }
  for (void* e : events) driver->delete_event(e);
  std::nth_element(times.begin(), times.begin() + 4, times.end());
  return times[4];
}

void print(const std::string& name, double us) { std::printf("  \"%s\": %.3f,\n", name.c_str(), us); }

struct Chain {
  void *graph = nullptr, *executable = nullptr;
  std::vector<void*> nodes;
};

cd::CudaKernelNode node_of(void* function, void** params) { return {function, {132, 1, 1}, {256, 1, 1}, 0, params, nullptr, nullptr, nullptr}; }

Chain make_chain(void* function, void** params, int count) {
  Chain c;
  check(driver->make_graph(&c.graph, 0), "graph");
  const cd::CudaKernelNode node = node_of(function, params);
  for (int i = 0; i < count; i++) {
    void* const last = c.nodes.empty() ? nullptr : c.nodes.back();
    c.nodes.push_back(nullptr);
    check(driver->add_kernel(&c.nodes.back(), c.graph, &last, last ? 1 : 0, &node), "node");
  }
  check(driver->instantiate(&c.executable, c.graph, 0), "instantiate");
  return c;
}

void measure_graphs(void* function, void** params, void** others) {
  for (const int count : {1, 2, 3, 4, 6, 10, 30, 100, 300}) {
    const std::string n = std::to_string(count);
    const double start = seconds();
    Chain c = make_chain(function, params, count);
    print("make_graph_" + n, (seconds() - start) * 1e6);
    const auto launch = [&] { driver->launch_graph(c.executable, stream); };
    print("graph_" + n, cost(count > 50 ? 2 : 5, launch));
    print("graph_" + n + "_device", device_cost(20, launch));
    print("stream_" + n + "_device", device_cost(20, [&] {
            for (int i = 0; i < count; i++) driver->launch(function, 132, 1, 1, 256, 1, 1, 0, stream, params, nullptr);
          }));
    int turn = 0;
    const auto change = [&](int first, int changes) {
      const cd::CudaKernelNode node = node_of(function, turn++ % 2 ? others : params);
      for (int i = first; i < first + changes; i++) driver->change_kernel(c.executable, c.nodes[static_cast<size_t>(i)], &node);
      launch();
    };
    print("graph_" + n + "_1_changed", cost(count > 50 ? 2 : 5, [&] { change(0, 1); }));
    if (count >= 10) print("graph_" + n + "_3_changed", cost(count > 50 ? 2 : 5, [&] { change(count / 2, 3); }));
    if (count > 1) print("graph_" + n + "_all_changed", cost(count > 50 ? 2 : 5, [&] { change(0, count); }));
    check(driver->delete_executable(c.executable), "delete");
    check(driver->delete_graph(c.graph), "delete");
  }
}

}  // namespace

int main() {
  CoilError error = {};
  driver = cd::cuda_driver(&error);
  if (!driver) return std::fprintf(stderr, "%s\n", error.message), 1;
  check(driver->retain(&context, 0), "retain");
  check(driver->set_current(context), "set_current");
  check(driver->make_stream(&stream, cd::kCudaStreamNonBlocking), "stream");
  void *module, *large, *small;
  check(driver->load_module(&module, kText), "module");
  check(driver->find_function(&large, module, "large"), "function");
  check(driver->find_function(&small, module, "small"), "function");
  alignas(64) static char first[512], second[512];
  second[5] = 1;
  void *params[] = {first}, *others[] = {second};
  const auto launch = [&](void* f) { driver->launch(f, 132, 1, 1, 256, 1, 1, 0, stream, params, nullptr); };
  std::printf("{\n");
  for (int i = 0; i < 20000; i++) launch(small);  // clocks
  print("launch_64_bytes", cost(100, [&] { launch(small); }));
  print("launch_512_bytes", cost(100, [&] { launch(large); }));
  cd::CudaLaunchAttribute attribute = {};
  attribute.id = cd::kCudaClusterDimension, attribute.cluster[0] = 2, attribute.cluster[1] = attribute.cluster[2] = 1;
  const cd::CudaLaunchConfig config = {{132, 1, 1}, {256, 1, 1}, 0, stream, &attribute, 1};
  print("launch_ex_cluster", cost(100, [&] { driver->launch_ex(&config, large, params, nullptr); }));
  int32_t status;
  print("is_capturing", cost(1000, [&] { driver->is_capturing(stream, &status); }));
  print("is_capturing_default", cost(1000, [&] { driver->is_capturing(nullptr, &status); }));
  void* current;
  print("get_current", cost(1000, [&] { driver->current(&current); }));
  print("set_current", cost(1000, [&] { driver->set_current(context); }));
  print("set_current_other", cost(1000, [&] { driver->set_current(nullptr), driver->set_current(context); }));
  if (driver->encode_tiled) {
    cd::CudaAddress data = 0;
    check(driver->allocate(&data, 1 << 20), "allocate");
    alignas(64) char map[128];
    const uint64_t sizes[] = {512, 512}, strides[] = {1024};
    const uint32_t box[] = {64, 128}, ones[] = {1, 1};
    print("encode_tensor_map", cost(1000, [&] { driver->encode_tiled(map, 9, 2, reinterpret_cast<void*>(data), sizes, strides, box, ones, 0, 3, 3, 0); }));
  }
  measure_graphs(large, params, others);
  std::printf("  \"unit\": \"us\"\n}\n");
}
