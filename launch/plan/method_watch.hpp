// MethodWatch: whether a running pipeline is to be replaced by that of another method.
//
//     look(gain, left)   a look at the pipeline; a choice: change to it
//
// Replan says when the prediction is wrong, the history which method is then the fastest, and
// Replan::pays() whether it gains more on what is left than loading it costs. A method that would
// pay only with more left is asked about again at each further look, with the gain that raised the
// question.
// Borrows the history. One thread.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "launch/plan/auto_choice.hpp"
#include "launch/plan/method_history.hpp"
#include "launch/plan/replan.hpp"

namespace paceline {

class MethodWatch {
public:
    /// `method`: that runs, and took so long to load; `plain`: what plain decoding is called.
    MethodWatch(const MethodHistory& history,
                std::string method,
                std::string plain,
                double load_seconds)
        : history_{&history},
          method_{std::move(method)},
          plain_{std::move(plain)},
          load_seconds_{load_seconds},
          replan_{prediction_of(method_)} {}

    /// `gain`: times plain decoding, since the last look; `plain_seconds_left`: what plain decoding
    /// takes for the rest.
    [[nodiscard]] std::optional<AutoChoice> look(double gain, double plain_seconds_left);
    /// Another one runs from now on.
    void begin(std::string method, double load_seconds);
    /// It could not be started: it is not chosen again.
    void refuse(const std::string& method) { refused_.insert(method); }
    [[nodiscard]] bool refused(const std::string& method) const {
        return refused_.contains(method);
    }

private:
    [[nodiscard]] double prediction_of(const std::string& method) const;

    const MethodHistory* history_;
    std::string method_;
    std::string plain_;
    double load_seconds_;
    Replan replan_;
    std::optional<double> asked_;  // the gain for which another plan is wanted
    std::set<std::string> refused_;
};

}  // namespace paceline
