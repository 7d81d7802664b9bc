// Resolves a name as NCCL resolves those in NCCL_NET_PLUGIN.
//
// Source: NCCL 2.28.9, src/plugin/plugin_open.cc (openPluginLib, tryOpenLib), src/plugin/net.cc
// (initPluginLibsOnceFunc).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plugfest::plugin {

/// The file names that core passes to dlopen for one name, in order: the name itself; then libnccl-net-<name>.so,
/// unless the name contains a "/" or has the form lib*.so.
std::vector<std::string> file_names(const std::string& name);

/// True for names that make core search the main program: prefixes of "STATIC_PLUGIN", in any letter case.
bool names_main_program(const std::string& name);

/// The path at which dlopen would find `file_name`; empty if it would not. A name with a "/" is a path. Others are
/// searched for in the folders of LD_LIBRARY_PATH, the loader's cache, and the system's library folders, in this order.
/// Like the loader, skips libraries for other architectures.
std::string find_library(const std::string& file_name);

/// The path of the file that core would load for `name`: the first of file_names() that is found.
/// Errors: LoadError with the folders that were searched.
std::string resolve(const std::string& name);

}  // namespace plugfest::plugin
