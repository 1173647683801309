// ServedMethod: the method of a serving pipeline: what its account measures is added to the record
// that `--method auto` chooses by (launch/plan), and it changes when another one is faster.
//
//     look()            at the account; may ask for another method (MethodWatch)
//                       while plain decoding runs, nothing is measured: after kPlainTokens of it
//                       the choice is made once more, then after twice as many
//     change_if_idle()  replaces the pipeline, if that was asked for and no answer is open
//
// Each look at enough tokens counts as a run, also the last one at the server's end. What is stored
// survives a server that is killed. What is left to decode is not known: as much as the pipeline
// has decoded so far. A method that cannot be started is not tried again.
// One thread; reads and writes files.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launch/api/method_in_use.hpp"
#include "launch/plan/account_gain.hpp"
#include "launch/plan/method_history.hpp"
#include "launch/plan/method_watch.hpp"
#include "launch/serve/method/served_pipelines.hpp"
#include "launch/session/service.hpp"

namespace paceline::serve {

/// What a change needs of the server.
struct MethodChanges {
    std::function<Result<ServedPipeline>(const std::string& method)> open;
    std::function<bool(const std::string& method)> fits_beside;  // a whole second pipeline
    SharedMethod* shown = nullptr;
    std::function<void(const std::string& what)> tell;
};

class ServedMethod {
public:
    static constexpr std::int64_t kPlainTokens = 20'000;

    struct Start {
        std::string method;     // as it is called in the record
        PipelineConfig config;  // of its pipeline
        double load_seconds = 0.0;
        bool may_change = false;  // else it is only recorded
    };

    ServedMethod(MethodHistory history, Start start, MethodChanges changes);
    ServedMethod(const ServedMethod&) = delete;
    ServedMethod& operator=(const ServedMethod&) = delete;
    ~ServedMethod() = default;

    /// What the service's tokens since the last look have shown; too few show nothing.
    void look(Service& service);
    /// A look's result: times plain decoding, and the time that plain decoding takes for as much as
    /// was decoded.
    void measured(double gain, double plain_seconds);
    /// So many tokens since the last look, if plain decoding runs: nothing can be measured there.
    void decoded_plainly(std::int64_t tokens);
    [[nodiscard]] bool wants_change() const { return next_.has_value(); }
    /// Blocks while a pipeline loads.
    void change_if_idle(Service& service);

private:
    void changed(const Service& service, const AutoChoice& choice, const ServedPipeline& opened);

    MethodHistory history_;
    std::string method_;
    bool may_change_;
    MethodChanges changes_;
    AccountGain gain_;
    std::int64_t emitted_ = 0;       // tokens at the last look
    std::int64_t plain_tokens_ = 0;  // since plain decoding began,
    std::int64_t plain_limit_ = kPlainTokens;
    MethodWatch watch_;
    std::optional<AutoChoice> next_;
};

}  // namespace paceline::serve
