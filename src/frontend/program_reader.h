// The way in: a `.pt2` archive of torch.export.save -> Graph. The only reader of the export schema.
//
// Read: schema major 7 and 8 (PyTorch 2.5 and later; weights raw, or pickled as before 2.9), stored or deflated entries. The graph is
// as the file has it: in-place operators and wrappers of training IR stay (see passes/), but arguments are in schema order with
// defaults, sizes are expressions, and nodes that only compute or check sizes are gone.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/zip_reader.h"
#include "graph/graph.h"

namespace coil {

struct ReadOptions {
  // Names for dynamic dimensions: {"s77": "batch"} by symbol, or {"x:0": "batch"} by input and dimension. They go before those
  // of the archive's entry extra/coil_dims.json, which has the same form.
  std::map<std::string, std::string> dim_names;
  // Which program of an archive of several; empty: "model", or the only one.
  std::string model_name;
  // Operators of the program that are not PyTorch's: user kernels. Each node of one knows it. Their names are distinct (check_names).
  UserKernels kernels;
  // Compares every weight with its checksum (reads all of them once).
  bool check_weights = true;
};

// Weights of stored entries are spans of the archive's bytes: for ZipReader::open the graph keeps the mapping alive, for
// from_bytes the caller's bytes must outlive the graph. Errors: file_*, bad_archive, archive_limit, bad_json,
// unsupported_archive, bad_weights; unsupported_schema, unsupported_dtype, bad_program, unsupported_feature (with the source
// line of the node at fault); bad_dimension for dim_names.
Result<Graph> read_program(const ZipReader& zip, const ReadOptions& options = {});
Result<Graph> read_program_file(const std::string& path, const ReadOptions& options = {});
// A program that is no archive: the text of models/model.json, and the tensors that its signature names, by their names in the
// model. Their bytes must outlive the graph, or the owners keep them.
Result<Graph> read_program_json(std::string_view json, std::map<std::string, TensorData, std::less<>> weights, const ReadOptions& options = {});

}  // namespace coil
