// Mutants of the rules about CollNet communicators and collectives.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "conformance/mutants/mutant.h"
#include "harness/abi/coll_net.h"

namespace plugfest::mutants {
namespace {

using Word = std::uint64_t;

// The requests that were posted and have not completed, oldest first, with their communicators.
using Posted = std::vector<std::pair<Word, Word>>;

// Keeps the requests of iallreduce in `posted`.
void keep_requests(Calls& calls, Posted& posted) {
  calls["iallreduce"] = [&posted, good = calls["iallreduce"]](Words& words) {
    const Result result = good(words);
    const Word request = at<Word>(words[8]);
    if (result == Result::kSuccess && request != 0) posted.emplace_back(request, words[0]);
    return result;
  };
  calls["test"] = [&posted, good = calls["test"]](Words& words) {
    const Word request = words[0];
    const Result result = good(words);
    if (result != Result::kSuccess || at<int>(words[1]) != 0)
      std::erase_if(posted, [request](const auto& one) { return one.first == request; });
    return result;
  };
  calls["closeColl"] = [&posted, good = calls["closeColl"]](Words& words) {
    std::erase_if(posted, [comm = words[0]](const auto& one) { return one.second == comm; });
    return good(words);
  };
}

}  // namespace

// Connects no more than two ranks.
MUTANT_OF(collnet_pairs_only, kCollNet, breaks("CO-03").also("CO-08", "CO-10", "CO-12", "CO-15", "CO-24")) {
  calls["connect"] = [good = calls["connect"]](Words& words) {
    return words[1] > 2 ? Result::kInvalidUsage : good(words);
  };
}

// Reads the handles of connect when it posts.
MUTANT_OF(collnet_keeps_handles, kCollNet,
          breaks("CO-04").also("CO-*").because("every rule that reduces reads the kept handles")) {
  static auto& first = kept<std::map<Word, std::pair<Word, Word>>>();  // by collComm: address and contents
  calls["connect"] = [good = calls["connect"]](Words& words) {
    const Word address = at<Word>(words[0]), contents = at<Word>(address);
    const Result result = good(words);
    if (result == Result::kSuccess) first[at<Word>(words[4])] = {address, contents};
    return result;
  };
  calls["iallreduce"] = [good = calls["iallreduce"]](Words& words) {
    const auto kept = first.find(words[0]);
    const bool same = kept == first.end() || at<Word>(kept->second.first) == kept->second.second;
    return same ? good(words) : Result::kInvalidArgument;
  };
}

// Refuses a single rank after it has stored a collComm.
MUTANT_OF(collnet_single_rank_half_connected, kCollNet, breaks("CO-05")) {
  calls["connect"] = [good = calls["connect"]](Words& words) {
    const Result result = good(words);
    return words[1] == 1 ? Result::kInvalidUsage : result;
  };
}

// The communicators of a process end with its second listener.
MUTANT_OF(collnet_second_listener_ends_comms, kCollNet,
          breaks("CO-06").also("CO-*").because("later rules of the process close further listeners")) {
  static int closed = 0;
  after_call(calls, "closeListen", [](Words&) { ++closed; });
  calls["iallreduce"] = [good = calls["iallreduce"]](Words& words) {
    return closed < 2 ? good(words) : Result::kInternalError;
  };
}

// Adds where it should multiply.
MUTANT_OF(collnet_products_are_sums, kCollNet, breaks("CO-08")) {
  calls["iallreduce"] = [good = calls["iallreduce"]](Words& words) {
    if (words[5] == abi::kProd) words[5] = abi::kSum;
    return good(words);
  };
}

// The first deregMr of a range ends all its registrations.
MUTANT_OF(collnet_one_registration_of_a_range, kCollNet, breaks("CO-09")) {
  static auto& ranges = kept<std::map<Word, Word>>();  // by handle
  calls["regMr"] = [good = calls["regMr"]](Words& words) {
    const Word address = words[1];
    const Result result = good(words);
    ranges[at<Word>(words[4])] = address;
    return result;
  };
  calls["deregMr"] = [good = calls["deregMr"]](Words& words) {
    const auto found = ranges.find(words[1]);
    if (found == ranges.end()) return Result::kInvalidArgument;
    std::erase_if(ranges, [address = found->second](const auto& one) { return one.second == address; });
    return good(words);
  };
}

// A reduction in place does not store its result.
MUTANT_OF(collnet_in_place_ignored, kCollNet, breaks("CO-10")) {
  static auto& nowhere = kept<std::vector<char>>();
  nowhere.resize(1 << 20);
  calls["iallreduce"] = [good = calls["iallreduce"]](Words& words) {
    if (words[1] == words[2]) words[2] = reinterpret_cast<Word>(nowhere.data());
    return good(words);
  };
}

// Nine outstanding reductions are an error.
MUTANT_OF(collnet_fails_when_full, kCollNet, breaks("CO-11")) {
  static auto& posted = kept<Posted>();
  keep_requests(calls, posted);
  calls["iallreduce"] = [good = calls["iallreduce"]](Words& words) {
    return posted.size() >= 8 ? Result::kInternalError : good(words);
  };
}

// Only the oldest request of a communicator may be tested.
MUTANT_OF(collnet_tests_oldest_only, kCollNet, breaks("CO-16")) {
  static auto& posted = kept<Posted>();
  keep_requests(calls, posted);
  calls["test"] = [good = calls["test"]](Words& words) {
    for (const auto& [request, comm] : posted) {
      if (request == words[0]) break;
      const auto own =
          std::find_if(posted.begin(), posted.end(), [&](const auto& one) { return one.first == words[0]; });
      if (own != posted.end() && own->second == comm) return Result::kInternalError;
    }
    return good(words);
  };
}

// Keeps 512 bytes of each reduction.
MUTANT_OF(collnet_leaks_requests, kCollNet, breaks("CO-27")) {
  static auto& leaked = kept<std::vector<std::vector<char>>>();
  after_call(calls, "iallreduce", [](Words&) { leaked.emplace_back(512, '\1'); });
}

// Takes every data window for the first one.
MUTANT_OF(collnet_window_offset_ignored, kCollNet, breaks("CO-12")) {
  calls["iallgather"] = [good = calls["iallgather"]](Words& words) {
    words[5] = 0;
    return good(words);
  };
}

// iallgather stores one byte more than the data window.
MUTANT_OF(collnet_gather_too_long, kCollNet, breaks("CO-12")) {
  calls["iallgather"] = [good = calls["iallgather"]](Words& words) {
    const Result result = good(words);
    const auto& part = at<abi::newest::CollNet::Part>(words[3]);
    if (result == Result::kSuccess) static_cast<char*>(part.address)[part.size] = 'x';
    return result;
  };
}

// Writes only one byte of *done.
MUTANT_OF(collnet_done_is_a_byte, kCollNet, breaks("CO-13")) {
  calls["test"] = [good = calls["test"]](Words& words) {
    const Word place = words[1];
    int done = 0;
    words[1] = reinterpret_cast<Word>(&done);
    const Result result = good(words);
    at<char>(place) = static_cast<char>(done);
    return result;
  };
}

// Supports GPU memory. A flush has a request, whose test writes *size.
MUTANT_OF(collnet_flush_writes_size, kCollNet, breaks("CO-14")) {
  static int flush = 0;
  after_call(calls, "getProperties",
             [](Words& words) { at<abi::newest::Properties>(words[1]).ptrSupport |= abi::kPointerCuda; });
  after_call(calls, "iflush", [](Words& words) { at<Word>(words[4]) = reinterpret_cast<Word>(&flush); });
  calls["test"] = [good = calls["test"]](Words& words) {
    if (words[0] != reinterpret_cast<Word>(&flush)) return good(words);
    at<int>(words[1]) = 1;
    at<volatile int>(words[2]) = 0;
    return Result::kSuccess;
  };
}

// closeColl is an error after another rank has closed its end.
MUTANT_OF(collnet_close_reports_lost_ranks, kCollNet, breaks("CO-15").also("CO-06", "CO-24")) {
  calls["closeColl"] = [good = calls["closeColl"], post = calls["iallreduce"], test = calls["test"]](Words& words) {
    char data = 0;
    Word request = 0;
    int done = 0;
    const auto pointer = [](auto& object) { return reinterpret_cast<Word>(&object); };
    Words own = {words[0], pointer(data), pointer(data), 1, abi::kInt8, abi::kSum, 0, 0, pointer(request)};
    Words testing = {0, pointer(done), 0};
    post(own);
    testing[0] = request;
    const Result result = request == 0 ? Result::kSuccess : test(testing);
    good(words);
    return result;
  };
}

// Leaves *request unchanged, and does nothing, if it holds an earlier request.
MUTANT_OF(collnet_takes_old_requests_for_new, kCollNet, breaks("CO-21").also("CO-26")) {
  static auto& known = kept<std::set<Word>>();
  calls["iallreduce"] = [good = calls["iallreduce"]](Words& words) {
    if (known.contains(at<Word>(words[8]))) return Result::kSuccess;
    const Result result = good(words);
    if (at<Word>(words[8]) != 0) known.insert(at<Word>(words[8]));
    return result;
  };
}

// Completes reductions in the order in which the process has posted them.
MUTANT_OF(collnet_completes_in_order_of_posting, kCollNet, breaks("CO-23").also("CO-12", "CO-25")) {
  static auto& posted = kept<Posted>();
  keep_requests(calls, posted);
  calls["test"] = [good = calls["test"]](Words& words) {
    if (!posted.empty() && posted.front().first == words[0]) return good(words);
    at<int>(words[1]) = 0;
    return Result::kSuccess;
  };
}

// A reduction that fails counts as complete.
MUTANT_OF(collnet_failures_are_completions, kCollNet, breaks("CO-24")) {
  calls["test"] = [good = calls["test"]](Words& words) {
    if (good(words) != Result::kSuccess) at<int>(words[1]) = 1;
    return Result::kSuccess;
  };
}

// Defers a reduction while one of another communicator is outstanding.
MUTANT_OF(collnet_one_communicator_at_a_time, kCollNet, breaks("CO-25").also("CO-23")) {
  static auto& posted = kept<Posted>();
  keep_requests(calls, posted);
  calls["iallreduce"] = [good = calls["iallreduce"]](Words& words) {
    const Word comm = words[0];
    if (posted.empty() || posted.front().second == comm) return good(words);
    at<Word>(words[8]) = 0;
    return Result::kSuccess;
  };
}

// Takes unknown operations for sums.
MUTANT_OF(collnet_unknown_operations_are_sums, kCollNet, breaks("CO-26")) {
  calls["iallreduce"] = [good = calls["iallreduce"]](Words& words) {
    if (words[5] > abi::kMin) words[5] = abi::kSum;
    return good(words);
  };
}

}  // namespace plugfest::mutants
