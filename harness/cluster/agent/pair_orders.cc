#include "harness/cluster/agent/pair_orders.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <chrono>
#include <span>
#include <utility>

#include "fabric/system/file.h"
#include "harness/cluster/agent/agent.h"

namespace plugfest::cluster {
namespace {

Descriptor event() {
  Descriptor fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) throw_errno("eventfd");
  return fd;
}

/// Only the two agents of an order, and the controller, can know it.
Token token_of_order(const Token& token, std::uint32_t order) {
  return mac(token, {bytes_of("order"), std::as_bytes(std::span(&order, 1))});
}

}  // namespace

PairOrders::PairOrders(const Token& token, std::string name, std::string version, Answer answer)
    : token_(token),
      name_(std::move(name)),
      version_(std::move(version)),
      answer_(std::move(answer)),
      wake_(event()),
      stopping_(event()) {}

PairOrders::~PairOrders() { eventfd_write(stopping_.get(), 1); }

void PairOrders::measure(const Message& message, const std::string& address) {
  try {
    auto pair = std::make_unique<Delegation>(address, token_of_order(token_, message.rank),
                                             PairOrder::parse(message.body), stopping_.get(), wake_.get());
    answer_(Kind::kListening, message.rank, fmt::format("{} {}", pair->meeting().address, pair->meeting().port));
    measured_.insert_or_assign(message.rank, std::move(pair));
  } catch (const std::exception& error) {
    answer_(Kind::kFailed, message.rank, error.what());
  }
}

void PairOrders::assist(const Message& message) {
  assisted_[message.rank] = std::async(std::launch::async, [this, message] {
    std::string failure;
    try {
      const std::string token = to_hex(token_of_order(token_, message.rank));
      run_agent(Meeting::parse(message.body + " " + token), name_, version_, stopping_.get());
    } catch (const std::exception& error) {
      failure = error.what();
    }
    eventfd_write(wake_.get(), 1);
    return failure;
  });
}

void PairOrders::report() {
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
  std::erase_if(measured_, [this](auto& it) {
    if (!it.second->done()) return false;
    answer_(Kind::kMeasured, it.first, it.second->report().text());
    return true;
  });
  for (auto it = assisted_.begin(); it != assisted_.end();) {
    const auto current = it++;
    if (current->second.wait_for(std::chrono::seconds(0)) != std::future_status::ready) continue;
    const std::string failure = current->second.get();
    if (!failure.empty()) answer_(Kind::kFailed, current->first, failure);
    assisted_.erase(current);
  }
}

}  // namespace plugfest::cluster
