#include "harness/plugin/library.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <link.h>

#include <algorithm>
#include <cstring>

#include "harness/plugin/nccl.h"
#include "harness/plugin/resolve.h"

namespace plugfest::plugin {
namespace {

// "_Z3foov (foo())".
std::string with_readable_name(const std::string& symbol) {
  const std::string name = demangled(symbol);
  return name == symbol ? symbol : fmt::format("{} ({})", symbol, name);
}

// Translates an error message of glibc's loader, which begins with the name of a file.
LoadError explain(const Inspection& inspection, const std::string& message) {
  const auto error = [&](const std::string& text, std::string missing = {}) {
    return LoadError(fmt::format("{}: {}", inspection.path, text), std::move(missing));
  };
  const std::string own = inspection.path + ": ";
  const bool is_own = message.starts_with(own);
  const std::string_view text = std::string_view(message).substr(is_own ? own.size() : 0);
  const std::string subject = message.substr(0, message.find(": "));
  if (constexpr std::string_view kMark = "undefined symbol: "; text.find(kMark) != text.npos) {
    const std::string_view rest = text.substr(text.find(kMark) + kMark.size());
    const std::string symbol = with_readable_name(std::string(rest.substr(0, rest.find_first_of(", \t("))));
    if (!is_own) return error(fmt::format("its dependency {} has the undefined symbol {}", subject, symbol));
    const bool of_cuda = symbol.starts_with("cuda");
    return error(fmt::format(
        "undefined symbol {}: link the library that defines it; NCCL loads plugins with RTLD_NOW and offers "
        "them no symbols{}",
        symbol, of_cuda ? "; if your programs load CUDA's runtime first, add --env LD_PRELOAD=libcudart.so.12" : ""));
  }
  if (text.find("cannot open shared object file") != text.npos) {
    const bool direct =
        std::find(inspection.needed.begin(), inspection.needed.end(), subject) != inspection.needed.end();
    return error(fmt::format("{} {}, which is not found: install it or add its folder to LD_LIBRARY_PATH",
                             direct ? "needs" : "one of its dependencies needs", subject),
                 subject);
  }
  return error(fmt::format("the dynamic loader refuses it: {}", text));
}

std::string file_of(void* handle, const std::string& otherwise) {
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map->l_name == nullptr) return otherwise;
  char* const absolute = ::realpath(map->l_name, nullptr);
  if (absolute == nullptr) return map->l_name;
  std::string path = absolute;
  std::free(absolute);
  return path;
}

}  // namespace

Library::Library(const std::string& plugin, int api, InterfaceKind kind) {
  if (is_builtin(plugin)) {
    const Builtin builtin = load_builtin(plugin);
    const std::string_view title = interface_of(builtin.kind).title;
    handle_ = builtin.library;
    path_ = builtin.path;
    apis_ = {builtin.api};
    built_in_ = true;
    if (kind != builtin.kind || (api != 0 && api != builtin.api)) {
      ::dlclose(handle_);
      throw LoadError(fmt::format("{}: is {} v{} of this libnccl only", plugin, title, builtin.api));
    }
    layout_ = &api_layout(kind, builtin.api);
    table_ = builtin.table;
    if (kind == InterfaceKind::kNet) net_ = adapt(builtin.api, builtin.table);
    return;
  }
  // dlopen would search for a name without "/".
  std::string file = resolve(plugin);
  if (file.find('/') == std::string::npos) file = "./" + file;
  const Inspection inspection = inspect(file);
  apis_ = inspection.apis(kind);
  layout_ = &api_layout(kind, choose_api(inspection, api, kind));
  handle_ = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) throw explain(inspection, ::dlerror());
  path_ = file_of(handle_, file);
  void* const table = ::dlsym(handle_, layout_->symbol.data());
  if (table == nullptr) {
    ::dlclose(handle_);
    throw LoadError(fmt::format("{}: dlsym does not find {}, although the file exports it", file, layout_->symbol));
  }
  table_ = table;
  if (kind == InterfaceKind::kNet) net_ = adapt(layout_->api, table);
}

const char* Library::name() const {
  const char* name = nullptr;
  std::memcpy(&name, table_, sizeof name);
  return name;
}

Library::AnyFunction Library::function(std::string_view name) const {
  AnyFunction function = nullptr;
  if (const SlotLayout* const slot = layout_->find(name))
    std::memcpy(&function, static_cast<const char*>(table_) + slot->offset, sizeof function);
  return function;
}

Library::~Library() {
  net_.reset();
  ::dlclose(handle_);
}

}  // namespace plugfest::plugin
