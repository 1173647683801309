// SoakSamples: figures of all processes of a pipeline, sampled over time, and the slope of each.
//
//   conductor   private memory, shared memory that it maps, descriptors, mappings (without the
//               telemetry blocks of dead stages, of which the supervisor keeps the newest 64)
//   stages      private memory, descriptors: one slope over all incarnations
//   pipeline    KV pages that running requests hold, queued batches, requests open in a stage
//
// A process is sampled once its first kWarmUp are over: caches and buffers grow until they have
// been used once. Costs the same memory however long it goes on. One thread.
#pragma once

#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

#include "launch/session/pipeline_session.hpp"
#include "tests/soak_run/slope.hpp"
#include "tests/soak_run/soak_plan.hpp"

namespace paceline::testing {

struct SoakFigure {
    std::string name;
    std::string unit;
    SlopeBound bound;
    Slope slope = {};
    [[nodiscard]] bool within() const { return slope.per_hour() <= bound.over(slope.hours()); }
};

class SoakSamples {
public:
    SoakSamples(const SoakPlan& plan, const PipelineSession& session);

    /// Samples if it is time to.
    void tick(SoakClock::time_point now);
    /// When all answers have ended: what the stages still hold, in words; empty: nothing.
    [[nodiscard]] std::string held_at_rest() const;

    [[nodiscard]] std::vector<SoakFigure> figures() const;

private:
    struct Life {
        pid_t pid = 0;
        SoakClock::time_point since{};
        SoakFigure memory;
        SoakFigure descriptors;
    };
    void sample_conductor(double hours);
    void sample_stages(SoakClock::time_point now, double hours, bool whole);
    void sample_telemetry(double hours);

    const PipelineSession& session_;
    SoakClock::duration warm_up_;
    SoakClock::duration every_;
    SoakClock::time_point begun_ = SoakClock::now();
    SoakClock::time_point next_ = begun_;
    SoakFigure memory_;
    SoakFigure shared_;
    SoakFigure descriptors_;
    SoakFigure mappings_;
    SoakFigure pages_;
    SoakFigure queued_;
    SoakFigure requests_;
    std::map<std::string, Life> stages_;  // by the name of the process
};

}  // namespace paceline::testing
