#include "runtime/simulation/shared_device.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ipc/base/check.hpp"
#include "runtime/simulation/sim_loop.hpp"
#include "runtime/simulation/sim_stages.hpp"

namespace paceline {

double SharedDevice::slowdown(const Job& job) const {
    const auto others = static_cast<std::uint32_t>(jobs_.size() - 1);
    return static_cast<double>(jobs_.size()) * job.contention(others);
}

void SharedDevice::advance(SimTime now) {
    const auto passed = static_cast<double>((now - at_).count());
    for (Job& job : jobs_) job.left = std::max(job.left - passed / slowdown(job), 0.0);
    at_ = now;
}

void SharedDevice::begin(std::uint32_t who, SimTime now, SimTime alone, Contention contention) {
    advance(now);
    PACE_CHECK(
        std::none_of(jobs_.begin(), jobs_.end(), [who](const Job& job) { return job.who == who; }),
        "a process runs one job at a time");
    jobs_.push_back({who, static_cast<double>(alone.count()), std::move(contention)});
}

void SharedDevice::end(std::uint32_t who, SimTime now) {
    advance(now);
    std::erase_if(jobs_, [who](const Job& job) { return job.who == who; });
}

std::vector<SharedDevice::End> SharedDevice::ends() const {
    std::vector<End> ends;
    for (const Job& job : jobs_)
        ends.push_back({job.who, at_ + SimTime{std::llround(job.left * slowdown(job))}});
    return ends;
}

void SharedDevices::begin(const SimIdentity& process, const JobLabel& label, SimTime alone) {
    if (process.spec.device.empty()) return;
    SharedDevice& device = devices_[process.spec.device];
    device.begin(process.serial, core_.now, alone,
                 [this, id = process.id(), label](std::uint32_t others) {
                     return timing_.contention(id, label, others);
                 });
    move_ends(device);
}

void SharedDevices::end(const SimIdentity& process) {
    if (process.spec.device.empty()) return;
    SharedDevice& device = devices_[process.spec.device];
    device.end(process.serial, core_.now);
    move_ends(device);
}

void SharedDevices::move_ends(const SharedDevice& device) {
    for (const SharedDevice::End& end : device.ends())
        stages_.process(end.who).loop().jobs().move_end(end.at);
}

}  // namespace paceline
