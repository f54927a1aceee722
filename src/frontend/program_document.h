// An exported program as its file has it: cut to a part of its nodes, and written as a file again. What is kept is kept as it was, so that programs of any
// operators and argument kinds can be cut; only the signature is made anew.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/zip_reader.h"
#include "graph/graph.h"

namespace coil {

class ProgramDocument {
 public:
  // graph: the same file's, which has the weights; program: which one of an archive of several, as ReadOptions::model_name. Errors: those of reading an
  // archive; unsupported_feature for a layout that is not written.
  static Result<ProgramDocument> open(const ZipReader& zip, const Graph& graph, const std::string& program = "");
  ProgramDocument(const ProgramDocument&);
  ProgramDocument& operator=(const ProgramDocument&);
  ProgramDocument(ProgramDocument&&) noexcept;
  ProgramDocument& operator=(ProgramDocument&&) noexcept;
  ~ProgramDocument();

  size_t num_nodes() const;
  // Tensors that the program gives its caller, and that it takes, by their names.
  std::vector<std::string> outputs() const;
  std::vector<std::string> inputs() const;
  // Tensors that nodes define, in order, and those that the node of one reads.
  std::vector<std::string> values() const;
  std::vector<std::string> operands(const std::string& value) const;
  bool has(const std::string& value) const;

  // The nodes that `outputs` need, where the tensors `given` are inputs instead of results. Writes to states and inputs are left out. bad_option for an
  // output that no node defines.
  Result<ProgramDocument> cut(const std::vector<std::string>& outputs, const std::set<std::string>& given) const;
  // Constant sizes of tensors, and of arguments that say sizes, are replaced (old -> new); weights keep the corner that is left of them. Whether the program
  // goes together then is not looked at.
  // Those of one tensor, nullopt for a dynamic one; and what the weights hold in all.
  std::vector<std::optional<int64_t>> constant_sizes_of(const std::string& value) const;
  uint64_t weight_bytes() const;
  ProgramDocument resized(const std::map<int64_t, int64_t>& sizes) const;
  // Weights with other contents of the same mean and deviation (`seed` decides which); the model's source lines are left out.
  void make_anonymous(uint64_t seed);
  // The archive of torch.export.save. Errors: file_unwritable.
  Status write(const std::string& path) const;

 private:
  struct Contents;
  ProgramDocument();
  std::unique_ptr<Contents> contents_;
};

}  // namespace coil
