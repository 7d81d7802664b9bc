#include "harness/doctor/finding.h"

#include <algorithm>

namespace plugfest::doctor {

const Finding* Mode::first_bad() const {
  const auto bad =
      std::find_if(findings.begin(), findings.end(), [](const Finding& it) { return it.state == State::kBad; });
  return bad == findings.end() ? nullptr : &*bad;
}

}  // namespace plugfest::doctor
