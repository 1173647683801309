#include "launch/serve/method/served_method.hpp"

#include <chrono>
#include <fmt/core.h>
#include <utility>

#include "launch/config/method_list.hpp"

namespace paceline::serve {

ServedMethod::ServedMethod(MethodHistory history, Start start, MethodChanges changes)
    : history_{std::move(history)},
      method_{start.method},
      may_change_{start.may_change},
      changes_{std::move(changes)},
      gain_{std::move(start.config)},
      watch_{history_, start.method, kPlainPipeline, start.load_seconds} {}

void ServedMethod::look(Service& service) {
    const AccountFigures account = service.session().usage().account;
    const VerdictTally verdicts = service.snapshot().verdicts;
    decoded_plainly(verdicts.emitted - std::exchange(emitted_, verdicts.emitted));
    const std::optional<MethodRate> run = gain_.since_last(account, verdicts);
    if (!run) return;
    const double gain = history_.over_plain(run->gain);
    history_.add(method_, *run);
    measured(gain, account.plain_us / 1e6);
}

/// The method that is then tried is judged as any other one.
void ServedMethod::decoded_plainly(std::int64_t tokens) {
    if (!may_change_ || next_ || method_ != kPlainPipeline) return;
    plain_tokens_ += tokens;
    if (plain_tokens_ < plain_limit_) return;
    plain_limit_ *= 2;
    history_.add_plain(AutoChoice::kPlainRunsMax);
    const AutoChoice choice = history_.choose(kPlainPipeline);
    if (choice.method != kPlainPipeline && !watch_.refused(choice.method)) next_ = choice;
}

void ServedMethod::measured(double gain, double plain_seconds) {
    if (!may_change_ || next_) return;
    next_ = watch_.look(gain, plain_seconds);
}

void ServedMethod::change_if_idle(Service& service) {
    if (!next_ || !service.wait_idle(std::chrono::milliseconds{0})) return;
    if (service.snapshot().state != ServiceState::Ok) return;  // before what fits is computed
    std::optional<ServedPipeline> opened;  // without its session, which the service has
    const auto open = [this, &opened](const std::string& method) {
        return [this, &opened, method]() -> Result<std::unique_ptr<PipelineSession>> {
            Result<ServedPipeline> made = changes_.open(method);
            if (!made) return made.error();
            std::unique_ptr<PipelineSession> session = std::move(made.value().session);
            opened = std::move(made).value();
            return session;
        };
    };
    const ChangeResult result = service.change({.open = open(next_->method),
                                                .again = open(method_),
                                                .beside = changes_.fits_beside(next_->method)});
    if (result.outcome == ChangeOutcome::Busy) return;
    const AutoChoice choice = *std::exchange(next_, std::nullopt);
    if (result.outcome == ChangeOutcome::Changed) return changed(service, choice, *opened);
    watch_.refuse(choice.method);
    if (result.outcome == ChangeOutcome::Failed) {
        may_change_ = false;
        return changes_.tell(fmt::format("method {} could not be started, nor {} again: {}",
                                         choice.method, method_, result.why.error().what));
    }
    if (opened) gain_ = AccountGain{opened->config, service.snapshot().verdicts};  // it began anew
    changes_.tell(fmt::format("method {} could not be started ({}); {} goes on", choice.method,
                              result.why.error().what, method_));
}

void ServedMethod::changed(const Service& service,
                           const AutoChoice& choice,
                           const ServedPipeline& opened) {
    changes_.tell(fmt::format("method {} instead of {}: {}; cached prompts are computed again",
                              choice.method, method_, choice.reason));
    method_ = choice.method;
    plain_tokens_ = 0;
    gain_ = AccountGain{opened.config, service.snapshot().verdicts};
    watch_.begin(method_, opened.load_seconds);
    changes_.shown->set({.name = opened.config.name,
                         .reason = choice.reason,
                         .gamma = gamma_max(opened.config),
                         .changes = changes_.shown->get().changes + 1});
}

}  // namespace paceline::serve
