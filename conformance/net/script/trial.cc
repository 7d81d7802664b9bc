#include "conformance/net/script/trial.h"

#include <fmt/format.h>

#include <utility>

#include "fabric/system/text.h"

namespace plugfest::conformance {

using control::PointerOutcome;
using control::Request;

Trial::Trial(std::function<PointerOutcome()> post, std::function<Request(std::uint64_t)> request)
    : post_(std::move(post)), to_request_(std::move(request)), request_(to_request_(0)) {}

Trial Trial::send(const control::SendComm& comm, const control::Buffer& buffer, int tag) {
  return {[=] { return comm.try_isend(buffer, tag); }, [=](std::uint64_t value) { return comm.request(value); }};
}

Trial Trial::receive(const control::RecvComm& comm, const std::vector<control::Part>& parts) {
  return {[=] { return comm.try_irecv(parts); }, [=](std::uint64_t value) { return comm.request(value); }};
}

bool Trial::turn() {
  if (over_) return true;
  if (!request_) {
    const PointerOutcome outcome = post_();
    last_ = outcome;
    if (outcome.ok() && outcome.value != 0) request_ = to_request_(outcome.value);
  } else {
    const control::TestOutcome outcome = request_.try_test();
    last_ = outcome;
    over_ = outcome.ok() && outcome.done == 1;
    if (over_) size_ = outcome.sizes.at(0);
  }
  code_ = last_.code;
  over_ = over_ || !last_.ok();
  return over_;
}

std::string Trial::describe() const {
  if (done()) return fmt::format("reported {}", counted(static_cast<std::size_t>(size_), "byte"));
  if (!over_) return "did not complete";
  return fmt::format("{} with {}", accepted() ? "failed" : "was refused", control::result_name(code_));
}

bool drive(std::initializer_list<Trial*> trials, int turns) {
  for (int i = 0; i < turns; ++i) {
    bool over = true;
    for (Trial* trial : trials) over = trial->turn() && over;
    if (over) return true;
  }
  return false;
}

}  // namespace plugfest::conformance
