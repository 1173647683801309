// StageEvents: handles what the node agent reports of the stages: their messages, their silence and
// their ends.
//
// Events of an incarnation that was replaced are dropped. Borrows the run and the hang check, which
// outlive it.
// Threads: the supervisor's.
#pragma once

#include <span>
#include <string>

#include "runtime/parent/hang_check.hpp"
#include "runtime/parent/supervised_run.hpp"

namespace paceline {

class StageEvents {
public:
    StageEvents(SupervisedRun& run, HangCheck& hang_check) : run_{run}, hang_check_{hang_check} {}

    /// For the node agent; this object outlives it.
    [[nodiscard]] NodeEvents handlers();

private:
    using Stage = SupervisedStage;
    using State = StageIncarnation::State;
    using Phase = SupervisedRun::Phase;

    void on_message(Incarnation who, ControlSocket::Received received);
    [[nodiscard]] static bool is_own_mail(const Stage& stage, const Envelope& envelope);
    void on_edge_fault(Stage& stage, const control::EdgeFault& fault);
    void on_offer(Stage& stage, const control::EdgeOffer& offer, std::span<const OwnedFd> files);
    void on_hello(Stage& stage, control::Hello hello);
    void on_failed(Stage& stage, const control::Failed& failed);
    void on_nonsense(Stage& stage, const std::string& complaint);
    void on_silence(Incarnation who, const Error& error);
    void on_exit(Incarnation who, bool well, const std::string& how);
    void on_machine_lost(Incarnation who, const std::string& why);
    void on_hung(Incarnation who, const std::string& complaint);

    SupervisedRun& run_;
    HangCheck& hang_check_;
};

}  // namespace paceline
