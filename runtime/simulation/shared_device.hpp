// SharedDevice: processor sharing: a simulated device on which the jobs of several processes run at
// the same time, and slow each other while they overlap.
//
//     slow-down of each of n jobs  =  n x contention(n - 1)
//
// The device is divided equally; contention(k) says how many times as long a job takes beside k
// others even so (memory, caches). What a job still has to do is kept in the time that it would
// take alone, so a job's end moves whenever another one begins or ends.
//
//     alone       A 10, from 0     B 6, from 4
//     together    A |----|========|==|          at 4 A has 6 left, B 6: both at half speed,
//                        B |==========|         both end at 16
//
// Pure: times come by calls. SharedDevices are those of a world, by name (SimProcessSpec::device).
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/observe/trace.hpp"
#include "runtime/simulation/sim_random.hpp"

namespace paceline {

class SimCore;
class SimStages;
struct SimIdentity;
struct SimTiming;

class SharedDevice {
public:
    /// How many times as long a job takes beside so many others, apart from the division; >= 1.
    using Contention = std::function<double(std::uint32_t others)>;

    /// A job of process `who`, which runs none, would take so long alone.
    void begin(std::uint32_t who, SimTime now, SimTime alone, Contention contention);
    /// It has ended, or its process has; without a job nothing happens.
    void end(std::uint32_t who, SimTime now);

    struct End {
        std::uint32_t who = 0;
        SimTime at{0};
        friend bool operator==(const End&, const End&) = default;
    };
    /// Of every job, if none begins before; in the order in which they began.
    [[nodiscard]] std::vector<End> ends() const;

private:
    struct Job {
        std::uint32_t who;
        double left;  // nanoseconds alone
        Contention contention;
    };

    void advance(SimTime now);
    [[nodiscard]] double slowdown(const Job& job) const;

    std::vector<Job> jobs_;
    SimTime at_{0};  // of what is left
};

/// Ignores processes that have a device of their own. Borrows core, timing and stages.
class SharedDevices {
public:
    SharedDevices(SimCore& core, SimTiming& timing, SimStages& stages)
        : core_{core}, timing_{timing}, stages_{stages} {}

    /// A job begins, which takes so long alone.
    void begin(const SimIdentity& process, const JobLabel& label, SimTime alone);
    /// Its job has ended, or the process has.
    void end(const SimIdentity& process);

private:
    void move_ends(const SharedDevice& device);

    SimCore& core_;
    SimTiming& timing_;
    SimStages& stages_;
    std::map<std::string, SharedDevice, std::less<>> devices_;
};

}  // namespace paceline
