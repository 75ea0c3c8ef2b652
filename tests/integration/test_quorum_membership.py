"""Voters that come and go, one at a time, while changes are made."""

import asyncio
import os

import pytest

from lograft.chaos.quorum_cluster import QuorumCluster
from lograft.chaos.quorum_workload import QuorumWorkload
from lograft.contract.errors import LogError, MembershipRefused

EFFORT = int(os.environ.get("LOGRAFT_TEST_EFFORT", "1"))
pytestmark = pytest.mark.requirement("R23", "R24")


def names(members) -> list[str]:
    return sorted(member.name for member in members)


def takes_part(status) -> bool:
    return status.state in ("following", "leading") and not status.problem


async def all_believe(cluster: QuorumCluster, members: list[str]) -> None:
    for name in members:
        await cluster.wait_for_status(
            name, lambda s: takes_part(s) and names(s.members) == members, f"{name} to believe in {members}"
        )


def test_three_become_five_then_the_first_leave(tmp_path):
    async def main():
        async with (
            QuorumCluster(tmp_path, spare_nodes=2, snapshots={"entries": 50, "history_entries": 5}) as cluster,
            QuorumWorkload(cluster) as load,
            cluster.client() as client,
        ):
            await load.progress(100)
            await cluster.start("q4", "q5")
            status = await cluster.wait_for_status("q4", lambda s: s.state == "not a member", "q4 waits")
            assert "lograft quorum add q4" in status.problem
            for name in ("q4", "q5"):
                await client.add_member(name, cluster.nodes[name].address)
            await all_believe(cluster, ["q1", "q2", "q3", "q4", "q5"])
            await load.progress(20)

            # Two of five may go. q4 and q5 count now.
            gone = [name for name in cluster.first if name != await cluster.leader()][:2]
            await cluster.kill(*gone)
            await load.progress(20)
            await cluster.start(*gone)
            await all_believe(cluster, ["q1", "q2", "q3", "q4", "q5"])

            for _ in range(2):
                leader = await cluster.wait_for_controller()
                assert leader not in names(await client.remove_member(leader))
                await cluster.wait_for_controller(other_than=[leader])
                await load.progress(20)
            left = names((await cluster.status(await cluster.wait_for_controller())).members)
            assert len(left) == 3
            await all_believe(cluster, left)

            # Those that were removed run on and disturb nobody.
            term = (await cluster.status(left[0])).term
            await asyncio.sleep(2)
            assert (await cluster.status(left[0])).term <= term + 1
            removed = [name for name in cluster.nodes if name not in left]
            for name in removed:
                assert (await cluster.status(name)).state not in ("leading", "following")
            await cluster.kill(*removed)

            await cluster.kill(*left)
            await cluster.start(*left)
            await all_believe(cluster, left)
            await load.progress(20)
            await load.finish()

    asyncio.run(main())


def test_two_changes_at_once_are_made_one_after_the_other(tmp_path):
    async def main():
        async with QuorumCluster(tmp_path, spare_nodes=2) as cluster, QuorumWorkload(cluster) as load:
            await cluster.start("q4", "q5")
            async with cluster.client() as client, cluster.client() as other:
                answers = await asyncio.gather(
                    client.add_member("q4", cluster.nodes["q4"].address),
                    other.add_member("q5", cluster.nodes["q5"].address),
                    client.add_member("q4", cluster.nodes["q4"].address),
                    return_exceptions=True,
                )
            refused = [answer for answer in answers if isinstance(answer, LogError)]
            assert [type(answer) for answer in refused] == [MembershipRefused]
            sizes = sorted(len(answer) for answer in answers if answer not in refused)
            assert sizes == [4, 5]
            await all_believe(cluster, ["q1", "q2", "q3", "q4", "q5"])
            await load.progress(20)
            await load.finish()

    asyncio.run(main())


def test_refusals_change_nothing(tmp_path):
    async def main():
        async with QuorumCluster(tmp_path, spare_nodes=1) as cluster, cluster.client(timeout_s=5) as client:
            q4 = cluster.nodes["q4"]
            with pytest.raises(MembershipRefused, match="start it first"):
                await client.add_member("q4", q4.address)
            await cluster.start("q4")
            with pytest.raises(MembershipRefused, match="q4, not q9"):
                await client.add_member("q9", q4.address)
            with pytest.raises(MembershipRefused, match="already"):
                await client.add_member("q2", cluster.nodes["q2"].address)
            with pytest.raises(MembershipRefused, match="not a member"):
                await client.remove_member("q4")
            with pytest.raises(MembershipRefused, match="other members"):
                await client.transfer("q4")
            for status in (await cluster.statuses()).values():
                assert names(status.members) in (["q1", "q2", "q3"], [])

            # A node that was removed cannot come back with what it remembers.
            leader = await cluster.wait_for_controller()
            removed = next(name for name in cluster.first if name != leader)
            await client.remove_member(removed)
            with pytest.raises(MembershipRefused, match="empty its directory"):
                await client.add_member(removed, cluster.nodes[removed].address)
            await cluster.kill(removed)
            cluster.wipe(removed)
            await cluster.start(removed)
            await client.add_member(removed, cluster.nodes[removed].address)
            await all_believe(cluster, ["q1", "q2", "q3"])

    asyncio.run(main())


def test_leader_cut_off_with_a_change_of_voters_in_its_log_leads_again_later(tmp_path):
    async def main():
        async with (
            QuorumCluster(tmp_path, spare_nodes=1, links="proxied", request_timeout_ms=3000) as cluster,
            QuorumWorkload(cluster, timeout_s=8) as load,
        ):
            await cluster.start("q4")
            await load.progress(10)
            leader = await cluster.wait_for_controller()
            cluster.isolate(leader)
            async with cluster.client(timeout_s=4) as client:
                adding = asyncio.create_task(client.add_member("q4", cluster.nodes["q4"].address))
                await asyncio.gather(adding, return_exceptions=True)
            await cluster.wait_for_controller(other_than=[leader])
            await cluster.heal()
            await load.progress(20)
            await cluster.wait_for_status(leader, takes_part, f"{leader} follows")
            async with cluster.client() as client:
                await client.transfer(leader)
                assert await cluster.wait_for_controller() == leader
                await load.progress(20)
                if "q4" not in names((await cluster.status(leader)).members):
                    await client.add_member("q4", cluster.nodes["q4"].address)
            await all_believe(cluster, ["q1", "q2", "q3", "q4"])
            await load.progress(20)
            await load.finish()

    asyncio.run(main())


@pytest.mark.parametrize("nodes", [1, 5] if EFFORT > 1 else [1])
def test_quorums_of_other_sizes_work_and_restart(tmp_path, nodes):
    async def main():
        async with QuorumCluster(tmp_path, nodes) as cluster, QuorumWorkload(cluster) as load:
            await load.progress(20)
            assert await cluster.terminate(*cluster.first) == [0] * nodes
            await cluster.start(*cluster.first)
            await load.progress(20)
            await load.finish()

    asyncio.run(main())


def test_leadership_is_handed_over_on_demand(tmp_path):
    async def main():
        async with QuorumCluster(tmp_path) as cluster, QuorumWorkload(cluster) as load, cluster.client() as client:
            for name in ("q1", "q2", "q3", "q1"):
                if await cluster.wait_for_controller() != name:
                    assert await client.transfer(name) == name
                assert await cluster.wait_for_controller() == name
                await load.progress(5)
            leader = await client.transfer()
            assert leader != "q1"
            await load.finish()

    asyncio.run(main())
