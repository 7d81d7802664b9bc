// A plugin that is loaded into this process: an interface of a library, or one of NCCL's built-in transports.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/plugin/inspect.h"
#include "harness/plugin/net.h"

namespace plugfest::plugin {

/// One loaded plugin. Destruction unloads it (dlclose) and calls none of its functions.
class Library {
 public:
  /// Loads as NCCL does, with RTLD_NOW and RTLD_LOCAL. `plugin`: a path, a name as in NCCL_NET_PLUGIN (resolve.h),
  /// "nccl:IB" or "nccl:Socket" (nccl.h). `api`: the version of the interface, 0 for the newest. Errors: LoadError.
  explicit Library(const std::string& plugin, int api = 0, InterfaceKind kind = InterfaceKind::kNet);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// Requires that the interface is the net.
  Net& net() { return *net_; }
  const ApiLayout& layout() const { return *layout_; }
  /// The plugin's own function table.
  const void* table() const { return table_; }
  /// The first member of the table; null if the plugin has not set it.
  const char* name() const;
  /// A function of the table; null if the version has none or the plugin has not set it.
  using AnyFunction = void (*)();
  AnyFunction function(std::string_view name) const;
  const std::string& path() const { return path_; }
  /// The versions of the interface that the plugin has, ascending.
  const std::vector<int>& apis() const { return apis_; }
  /// True for a transport inside libnccl, to which rules about libraries do not apply.
  bool built_in() const { return built_in_; }

 private:
  void* handle_ = nullptr;
  const void* table_ = nullptr;
  const ApiLayout* layout_ = nullptr;
  std::unique_ptr<Net> net_;
  std::string path_;
  std::vector<int> apis_;
  bool built_in_ = false;
};

}  // namespace plugfest::plugin
