#include "launch/plan/method_watch.hpp"

#include <fmt/core.h>

#include "launch/config/method_list.hpp"

namespace paceline {

void MethodWatch::begin(std::string method, double load_seconds) {
    method_ = std::move(method);
    load_seconds_ = load_seconds;
    replan_ = Replan{prediction_of(method_)};
    asked_.reset();
}

/// A method that the record says loses is tried again: what shows less than plain decoding's speed
/// is then an error.
double MethodWatch::prediction_of(const std::string& method) const {
    const double gain = history_->gain_of(method);
    const bool loses = gain > 0.0 && gain < 1.0 - AutoChoice::kLossMax;
    return loses ? 1.0 / (1.0 - Replan::kError) : gain;
}

std::optional<AutoChoice> MethodWatch::look(double gain, double plain_seconds_left) {
    if (replan_.measured(gain)) asked_ = gain;
    if (!asked_) return std::nullopt;
    AutoChoice other = history_->choose_given(plain_, method_, *asked_, refused_);
    if (other.method == method_ || refused_.contains(other.method)) {
        asked_.reset();
        return std::nullopt;
    }
    const bool plain = other.method == plain_;
    // A stage that speculates nothing is slower than plain decoding without stages.
    const double of_plain = plain_ == kPlainPipeline ? history_->over_plain(1.0) : 1.0;
    const bool pays =
        Replan::pays({.gain = *asked_,
                      .other_gain = plain ? of_plain : history_->gain_of(other.method),
                      .plain_seconds_left = plain_seconds_left,
                      .load_seconds = load_seconds_});
    if (!pays) return std::nullopt;
    if (plain) other.reason = fmt::format("{} has {:.2f} times its speed now", method_, *asked_);
    asked_.reset();
    return other;
}

}  // namespace paceline
