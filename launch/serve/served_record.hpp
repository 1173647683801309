// ServedRecord: adds what the account of a serving pipeline measures to the record that
// `--method auto` chooses by (launch/plan), as `paceline run` does at its end.
//
// Each period with enough tokens counts as a run, and the rest at the server's end. What is stored
// survives a server that is killed, but for the last period. One thread; reads and writes files.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "launch/plan/account_gain.hpp"
#include "launch/plan/method_history.hpp"
#include "launch/session/service.hpp"

namespace paceline::serve {

class ServedRecord {
public:
    static constexpr std::chrono::minutes kPeriod{5};

    /// `method`: as it is called in the record; `config`: of its pipeline.
    ServedRecord(MethodHistory history, std::string method, PipelineConfig config)
        : history_{std::move(history)}, method_{std::move(method)}, gain_{std::move(config)} {}

    /// What the service's tokens since the last call have shown; too few show nothing.
    void store(Service& service) {
        const AccountFigures account = service.session().usage().account;
        if (const auto run = gain_.since_last(account, service.snapshot().verdicts))
            history_.add(method_, *run);
    }

private:
    MethodHistory history_;
    std::string method_;
    AccountGain gain_;
};

}  // namespace paceline::serve
