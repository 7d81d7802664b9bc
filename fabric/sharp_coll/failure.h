// Errors that carry a code of SHARP.
#pragma once

#include <stdexcept>
#include <string>

#include "fabric/sharp_coll/sharp/api/sharp_coll.h"

namespace plugfest::sharp_coll {

/// An error with the code that the C function returns. what(): what failed, where, and what to do, in one line.
class Failure : public std::runtime_error {
 public:
  Failure(sharp_error_no code, const std::string& text) : std::runtime_error(text), code_(code) {}
  sharp_error_no code() const { return code_; }

 private:
  sharp_error_no code_;
};

}  // namespace plugfest::sharp_coll
