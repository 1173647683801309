#include "runtime/parent/failure_log.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <utility>

namespace paceline {

void FailureLog::note(Micros at, std::string why) {
    if (!first_) {
        first_ = Failure{at, std::move(why)};
        return;
    }
    why.resize(std::min(why.find('\n'), why.size()));
    later_.push_back({at, std::move(why)});
    if (later_.size() <= kLaterMax) return;
    later_.pop_front();
    ++omitted_;
}

std::string FailureLog::text() const {
    if (!first_ || later_.empty()) return "";
    std::string text = "\nthe first failure: " + first_->why;
    if (omitted_ > 0) text += fmt::format("\n{} more are left out here", omitted_);
    for (const Failure& failure : later_) {
        const double seconds = std::chrono::duration<double>(failure.at - first_->at).count();
        text += fmt::format("\n{:.1f} s after it: {}", seconds, failure.why);
    }
    return text;
}

}  // namespace paceline
