// Looking things up in a graph.
#include "graph/graph.h"

namespace coil {

const Argument* Node::find(std::string_view arg_name) const {
  for (size_t i = 0; i < arg_names.size() && i < args.size(); ++i) {
    if (arg_names[i] == arg_name) return &args[i];
  }
  return nullptr;
}

ValueId Graph::add_value(ValueInfo info) {
  values.push_back(std::move(info));
  return ValueId(values.size() - 1);
}

std::string where(const Node& node) {
  for (const Origin& o : node.origins) {
    if (o.source.empty()) continue;
    return o.source_line.empty() ? o.source : o.source + ": " + o.source_line;
  }
  return {};
}

}  // namespace coil
