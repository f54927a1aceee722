// KernelPlan -> CUDA C++. A generated kernel takes its arguments by value: the addresses of its buffers, the dynamic sizes, where to
// report an index out of range, and whether its wide (16-byte) accesses are allowed.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/hint.h"
#include "schedule/kernel_plan.h"
#include "schedule/target.h"
#include "templates/cuda_variants.h"

namespace coil::cuda {

// One generated kernel function. Kernels with the same text (but for the head comment) are one function.
struct CudaFunction {
  std::string name;                  // "add_layer_norm_1f3a9c02"
  std::string text;                  // head comment, argument struct and definition
  size_t comment_bytes = 0;          // of the head comment; the rest does not depend on what the program calls its things
  std::vector<std::string> headers;  // device headers that it needs
  int threads = 256;
  int64_t shared_bytes = 0;  // dynamic
  int cluster = 1;
  std::set<int> sms;  // the architectures that it is compiled for
  std::string label;  // for messages: "add_layer_norm (model.py:12)"
  // Of a user's kernel, whose text is a unit by itself: what wrote it, and how coil calls it.
  std::shared_ptr<const UserKernel> user;
  std::string user_call;
  const UserImage* image = nullptr;  // of `user`: the function is machine code already
  std::string replaced;              // the file of --replace-kernel that the text is from
};

// What a launch tells its function of one kernel of the plan. All expressions are C++ text of the host program.
struct CudaArgs {
  int kernel = -1;                                // that it is for; -1: the launch's, and those after it
  std::vector<BufferId> buffers;                  // args.p
  std::vector<std::pair<BufferId, int>> aligned;  // buffers whose addresses must be multiples of that for wide accesses
  std::vector<std::string> divisible;             // expressions that must be 0 for wide accesses
  std::string blocks;                             // of several kernels in one launch: how many blocks work for this one
};

// What a loop's grid is made of: a block for every so many. amount null: the grid is looked at elsewhere.
struct GridWork {
  Expr amount;
  int64_t per_block = 1;
};

// One way to compute a kernel of the plan, or some that run beside each other: a launch of a function.
struct CudaLaunch {
  int function = -1;
  const UserImage* image = nullptr;  // what the function is, if it is machine code that another compiler made; `args` is empty then
  std::vector<CudaArgs> args;        // one per kernel
  std::string grid_x = "1", grid_y = "1", grid_z = "1";
  GridWork work;                  // that grid_x counts
  std::string condition;          // empty: always
  std::optional<int64_t> number;  // that the function gets behind the arguments
  std::string setup;              // statements before (templates)
};

// Products of the same rows as one launch (joined_products.h), for each architecture; else their kernels run one after the other.
struct CudaTogether {
  size_t kernels = 0;                // of the plan, from this one on
  std::vector<CudaLaunch> launches;  // `setup` defines and fills `t`, which the condition is about
  int64_t rows = 0;                  // see JoinedProducts
  bool always = false;               // the kernels have no launches of their own
};

// A kernel of the plan: its launches are alternatives, the first whose condition holds (and whose function the device has) runs.
struct CudaCall {
  std::vector<CudaLaunch> launches;  // empty: a plain copy
  std::vector<CudaLaunch> further;   // after the only one of those: each whose condition holds, one after the other
  std::optional<CudaTogether> together;
  bool checks_index = false;
  bool joined = false;  // computed by the launch of a kernel before it
};

// Where the functions that choose a token begin, in the order of device/cuda_sample.h.
struct TokenChoice {
  int function = -1;
  int64_t vocabulary = 0;
};

struct CudaProgram {
  std::vector<CudaFunction> functions;
  std::vector<CudaCall> calls;  // one per kernel of the plan
  int arg_symbols = 0;
  std::set<std::string> libraries;    // "libcublasLt", "libcudnn": used where the machine has them
  std::optional<TokenChoice> choice;  // of a program that generates text (token_choice.h)
};

// A package holds code for all of `sms` (80, 90, ...): templates get each architecture's own variants.
struct CudaSettings {
  std::vector<int> sms;
  bool libraries = true;  // and variants that use NVIDIA's libraries (templates/cuda_library.h)
  // Of a tuned program: the architecture that the kernels' choices are for, and which choices a problem may get (scratch memory is for
  // them). Of a tuner's build: for each kernel of the plan, what its code can be told to run.
  int tuned_sm = 0;
  std::function<std::vector<Choice>(const std::string& problem)> choices;
  std::vector<std::vector<Choice>> timed;
  bool joins = true;                       // products of few rows may share a launch; false: each kernel runs by itself, for those who look at each
  std::vector<CudaMachine> machines = {};  // that are given; of other architectures it is the table's (base/cuda_machine.h)

  CudaMachine machine(int sm) const;
};
TargetTraits traits(const CudaSettings& settings);
CudaProgram generate_kernels(const KernelPlan& plan, const CudaSettings& settings);
// What in each kernel's shapes costs speed.
std::vector<KernelHint> hints(const KernelPlan& plan);

// --- parts
struct KernelText {
  std::string body;  // with @NAME@ in place of its name
  std::vector<std::string> headers;
  std::vector<BufferId> buffers;
  int threads = 256;
  int64_t shared_bytes = 0;
  std::string grid_x = "1", grid_y = "1", grid_z = "1";
  GridWork work;
  std::vector<std::pair<BufferId, int>> aligned;
  std::vector<std::string> divisible;
};
KernelText pointwise_text(const KernelPlan& plan, const LoopKernel& kernel);
// The same as a function of (arguments, block) for kernels that compute several; nullopt: this one wants a launch of its own.
std::optional<KernelText> pointwise_part(const KernelPlan& plan, const LoopKernel& kernel);
KernelText reduction_text(const KernelPlan& plan, const LoopKernel& kernel);
// One of several launches that compute a kernel, one after the other.
struct KernelStep {
  KernelText text;
  std::optional<int64_t> number;
  std::string condition;
};
std::vector<KernelStep> sort_launches(const KernelPlan& plan, const SortKernel& kernel);
std::vector<KernelStep> join_launches(const KernelPlan& plan, const LibraryKernel& kernel);
KernelText user_kernel_text(const KernelPlan& plan, const UserCallKernel& kernel, size_t config);
// The epilogue as a function object `@NAME@_epilogue` and the kernel around the variant's call.
KernelText template_text(const KernelPlan& plan, const TemplateKernel& kernel, const templates::CudaVariant& variant);

// The epilogue's function object alone. second: a product of the same rows and as many columns, whose epilogue reads what the first one stores at its own
// points (schedule/products/join_products.h): both are finished at once. ahead: bytes of a lane's columns that the kernel can read before it has the elements.
// fresh: what the same launch has written.
KernelText epilogue_text(const KernelPlan& plan, const TemplateKernel& kernel, const TemplateKernel* second = nullptr, int ahead = 0,
                         const std::vector<BufferId>& fresh = {});

}  // namespace coil::cuda
