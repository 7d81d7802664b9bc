// A variant that writes down the calls of transfers, to compare callers.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

/// A file of this process in the folder PLUGFEST_RECORD_CALLS, a line for each call; nothing without that variable.
class CallFile {
 public:
  CallFile() {
    if (const char* folder = std::getenv("PLUGFEST_RECORD_CALLS"))
      file_ = std::fopen((folder + ("/" + std::to_string(getpid()))).c_str(), "ae");
  }
  ~CallFile() {
    if (file_ != nullptr) std::fclose(file_);
  }
  CallFile(const CallFile&) = delete;
  CallFile& operator=(const CallFile&) = delete;

  void write(const char* call, const void* comm, std::size_t size, int tag) {
    if (file_ == nullptr) return;
    const std::lock_guard lock(mutex_);
    std::fprintf(file_, "%s %p %zu %d\n", call, comm, size, tag);
    std::fflush(file_);  // the process may be killed
  }

 private:
  std::mutex mutex_;
  std::FILE* file_ = nullptr;
};

}  // namespace

// Records connections, registrations and accepted transfers: "isend COMM SIZE TAG". A group of receives is as many
// lines.
VARIANT(records_calls) {
  auto file = std::make_shared<CallFile>();
  net.connect = [&good, file](void* context, int device, void* handle, void** comm) {
    const Result result = good.connect(context, device, handle, comm);
    if (result == Result::kSuccess && *comm != nullptr) file->write("connect", *comm, 0, 0);
    return result;
  };
  net.accept = [&good, file](void* listen_comm, void** comm) {
    const Result result = good.accept(listen_comm, comm);
    if (result == Result::kSuccess && *comm != nullptr) file->write("accept", *comm, 0, 0);
    return result;
  };
  net.reg_mr = [&good, file](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    file->write("regMr", comm, size, type);
    return good.reg_mr(comm, data, size, type, mhandle);
  };
  net.isend = [&good, file](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const Result result = good.isend(comm, data, size, tag, mhandle, request);
    if (result == Result::kSuccess && *request != nullptr) file->write("isend", comm, size, tag);
    return result;
  };
  net.irecv = [&good, file](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                            void** request) {
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    for (int i = 0; i < n && result == Result::kSuccess && *request != nullptr; ++i)
      file->write("irecv", comm, sizes[i], tags[i]);
    return result;
  };
}

}  // namespace plugfest::mutants
