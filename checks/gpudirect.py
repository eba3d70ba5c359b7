"""Fabric: may network adapters and storage reach GPU memory directly?"""

from gpudoctor.chain import Link
from gpudoctor.facts.peer_memory import DirectStorage, PeerMemory
from gpudoctor.registry import check
from gpudoctor.verdicts import NODE, NotApplicable, Pass, Unknown, Unread, Verdict, Verdicts, Warn, Why

PEER_MEMORY, STORAGE = "fabric.peer-memory", "fabric.gpudirect-storage"


@check(
    PEER_MEMORY,
    link=Link.FABRIC,
    needs={Link.KERNEL_MODULE},
    advisory=True,
    title="RDMA adapters may reach GPU memory directly",
)
def peer_memory(peers: PeerMemory) -> Verdicts:
    """Between nodes NCCL sends GPU memory straight to the adapter (GPUDirect RDMA); else each transfer goes through the CPU's memory.

    Two ways lead there: the module nvidia-peermem beside NVIDIA's own ib_core (MLNX_OFED, DOCA), or dma-buf, with a kernel from 5.12 on and
    the open kernel modules. "disagrees about version of symbol ib_register_peer_memory_client" means that the driver was built before, or
    without, that ib_core. Judged where an adapter has an active port, and it is InfiniBand or somebody asks for the module: Ethernet
    adapters with RDMA are everywhere, and not all need it. "nv_get_p2p_free_callback … detected invalid context" is noise that a
    program leaves when it ends; it is no fault.
    """
    active = peers.adapters
    if active is None:
        yield NotApplicable(NODE, "no RDMA adapter beside a GPU")
    elif isinstance(active, Unread):
        yield active.about(NODE)
    elif not active:
        yield NotApplicable(NODE, "no RDMA adapter has an active port")
    elif peers.module is not None:
        yield Pass(NODE, "nvidia-peermem is loaded", (peers.module, active[0]))
    elif peers.dma_buf:
        said = "no nvidia-peermem; the open kernel modules share GPU memory by dma-buf"
        if peers.misfit is not None:
            said += "; the module was built for another ib_core and did not load"
        yield Pass(NODE, said, (*peers.dma_buf, active[0]))
    elif not peers.lacking and peers.misfit is None:
        yield Unknown(
            NODE, Why.NOT_ANSWERED, "nvidia-peermem is not loaded; whether dma-buf is possible is not known", active[:1]
        )
    elif peers.wanted is None:
        yield NotApplicable(NODE, "nobody asks for nvidia-peermem, and no active port is InfiniBand", active[:1])
    else:
        yield _without(peers, len(active))


def _without(peers: PeerMemory, adapters: int) -> Verdict:
    from gpudoctor.knowledge.fabric_remedies import load_peermem

    assert isinstance(peers.adapters, tuple)
    told = peers.lacking + ((peers.misfit,) if peers.misfit is not None else ())
    why = (
        "it was built for another ib_core"
        if peers.misfit is not None
        else "and dma-buf takes a kernel from 5.12 on and the open modules"
    )
    summary = f"nvidia-peermem is not loaded, {why}: traffic of {adapters} RDMA adapters goes through the CPU's memory"
    wanted = () if peers.wanted is None or peers.wanted in told else (peers.wanted,)
    evidence = (*told, *wanted, peers.adapters[0])
    return Warn(
        NODE, summary, evidence, load_peermem(PEER_MEMORY, rebuild=peers.misfit is not None), cause="no-peer-memory"
    )


@check(
    STORAGE,
    link=Link.FABRIC,
    needs={Link.KERNEL_MODULE},
    advisory=True,
    title="nvidia-fs is loaded where GPUDirect Storage is installed",
)
def gpudirect_storage(storage: DirectStorage) -> Verdicts:
    """GPUDirect Storage reads files straight into GPU memory through the module nvidia-fs; without it cuFile quietly copies twice.

    Judged where the module's own package is there (its sources below /usr/src, or its line in modules-load.d): /etc/cufile.json and
    libcufile come with every CUDA toolkit and prove no wish. Newer drivers and kernels can do without the module on local NVMe (P2PDMA).
    """
    if storage.wanted is None:
        yield NotApplicable(NODE, "nvidia-fs is not installed")
    elif isinstance(storage.wanted, Unread):
        yield storage.wanted.about(NODE)
    elif storage.module is not None:
        yield Pass(NODE, "nvidia-fs is loaded", (storage.module,))
    else:
        from gpudoctor.knowledge.fabric_remedies import load_storage

        assert storage.unloaded is not None
        summary = "GPUDirect Storage is installed, but its module nvidia-fs is not loaded: cuFile copies through the CPU's memory"
        yield Warn(NODE, summary, (storage.wanted, storage.unloaded), load_storage(STORAGE), cause="no-nvidia-fs")
