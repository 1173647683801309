// JobQueue: the jobs that the actors of one process have submitted, and how many of them are over.
//
//   push() --> [queued] --take()--> [running] --end()--> [ended] --completed()--> over
//                                                        `done` has been called
//
// Jobs of all actors run one at a time, in the order of submission. A channel that was closed while
// jobs were queued stays mapped until finished() reaches the submitted() of that moment.
// Bounded by what the actors submit. Threads: the loop's, which also runs the jobs.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "ipc/base/ids.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

class JobQueue {
public:
    struct Job {
        StageId owner;
        JobLabel label;
        std::function<JobOutcome()> work;
        std::function<void(JobOutcome)> done;
    };

    void push(Job job) {
        ++submitted_;
        jobs_.push_back(std::move(job));
    }
    [[nodiscard]] bool empty() const { return jobs_.empty(); }
    /// What the next job is about; nullptr if there is none.
    [[nodiscard]] const JobLabel* first() const {
        return jobs_.empty() ? nullptr : &jobs_.front().label;
    }
    /// Precondition: not empty.
    [[nodiscard]] Job take() {
        Job job = std::move(jobs_.front());
        jobs_.pop_front();
        return job;
    }
    /// The work of the job that was taken has returned.
    void end(JobOutcome outcome) { last_outcome_ = outcome; }
    /// Its completion was handled.
    void completed() { ++finished_; }

    /// Of the last job that ended.
    [[nodiscard]] JobOutcome last_outcome() const { return last_outcome_; }
    /// Jobs ever submitted, and how many of them have ended with their completion handled.
    [[nodiscard]] std::uint64_t submitted() const { return submitted_; }
    [[nodiscard]] std::uint64_t finished() const { return finished_; }

private:
    std::deque<Job> jobs_;
    JobOutcome last_outcome_ = JobOutcome::Cancelled;
    std::uint64_t submitted_ = 0;
    std::uint64_t finished_ = 0;
};

}  // namespace paceline
