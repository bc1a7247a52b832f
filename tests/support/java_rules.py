"""A controller that answers as RocketMQ's does: no leases, no answers beside the plain ones.

Checks and their order are those of spec/controller.md 5. It never elects on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rmqstore.remoting.bodies.controller import SyncStateSetBody, elected_body
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame

Answer = Callable[[Any, Frame], "Frame | None"]
NAMES = ("clusterName", "brokerName")


class JavaRules:
    """One group; *leader* is the address that GET_METADATA_INFO names, empty for none."""

    def __init__(self) -> None:
        self.leader = ""
        self.leads = True
        self.next_id = 1
        self.codes: dict[int, str] = {}
        self.addresses: dict[int, str] = {}
        self.dead: set[int] = set()
        self.master: int | None = None
        self.epoch = self.set_epoch = 0
        self.members: frozenset[int] = frozenset()
        self.proposed: list[tuple[frozenset[int], bool]] = []
        """The sets of all proposals, and whether each differed from the present one."""
        self.asked: list[int] = []
        """The codes of all requests."""
        self.beats: list[Mapping[str, str]] = []
        self.is_silent = False
        """Whether requests are carried out and get no answer."""
        self.silent_codes: set[int] = set()
        """Requests of which the next one gets no answer."""

    def handlers(self) -> dict[int, Answer]:
        """Return the handlers by request code."""
        return {
            code: self._handler(code, answer)
            for code, answer in {
                RequestCode.BROKER_HEARTBEAT: self.beat,
                RequestCode.CONTROLLER_GET_METADATA_INFO: self.metadata,
                RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: self.next_broker_id,
                RequestCode.CONTROLLER_APPLY_BROKER_ID: self.apply,
                RequestCode.CONTROLLER_REGISTER_BROKER: self.register,
                RequestCode.CONTROLLER_ELECT_MASTER: self.elect,
                RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: self.alter,
                RequestCode.CONTROLLER_GET_REPLICA_INFO: self.replica_info,
            }.items()
        }

    def _handler(self, code: int, answer: Callable[[Frame], Frame]) -> Answer:
        served_by_all = (RequestCode.BROKER_HEARTBEAT, RequestCode.CONTROLLER_GET_METADATA_INFO)

        def handle(connection: Any, request: Frame) -> Frame | None:
            self.asked.append(code)
            if not self.leads and code not in served_by_all:
                return request.respond(ResponseCode.CONTROLLER_NOT_LEADER)
            answered = answer(request)
            if code in self.silent_codes:
                self.silent_codes.remove(code)
                return None
            return None if self.is_silent else answered

        return handle

    def elect_as(self, master: int | None) -> None:
        """Hold an election with that outcome."""
        self.master = master
        self.epoch += 1
        if master is not None:
            self.members = frozenset((master,))
            self.set_epoch += 1

    def notice(self) -> Frame:
        """Return NOTIFY_BROKER_ROLE_CHANGED."""
        body = SyncStateSetBody(self.members, self.set_epoch).encode()
        return Frame.request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, self._master(), body)

    def _master(self) -> dict[str, str]:
        fields = {"masterEpoch": str(self.epoch), "syncStateSetEpoch": str(self.set_epoch)}
        if self.master is not None:
            fields["masterBrokerId"] = str(self.master)
            fields["masterAddress"] = self.addresses.get(self.master, "")
        return fields

    def beat(self, request: Frame) -> Frame:
        self.beats.append(request.ext_fields)
        return request.respond(ResponseCode.SUCCESS, "Heart beat success")

    def metadata(self, request: Frame) -> Frame:
        fields = {"isLeader": "true" if self.leads else "false", "group": "g", "peers": ""}
        if self.leader:
            fields["controllerLeaderAddress"] = self.leader
        return request.respond(ResponseCode.SUCCESS, fields=fields)

    def next_broker_id(self, request: Frame) -> Frame:
        fields = self._names(request) | {"nextBrokerId": str(self.next_id)}
        return request.respond(ResponseCode.SUCCESS, fields=fields)

    @staticmethod
    def _names(request: Frame) -> dict[str, str]:
        return {each: request.ext_fields[each] for each in NAMES}

    def apply(self, request: Frame) -> Frame:
        number = int(request.ext_fields["appliedBrokerId"])
        code = request.ext_fields["registerCheckCode"]
        is_first = not self.addresses and number == 1
        is_free = bool(self.addresses) and number not in self.addresses
        if not (is_first or is_free or self.codes.get(number) == code):
            return request.respond(
                ResponseCode.CONTROLLER_BROKER_ID_INVALID, "taken", fields=self._names(request)
            )
        if number not in self.addresses:
            self.next_id += 1
        self.codes[number] = code
        self.addresses.setdefault(number, code.partition(";")[0])
        return request.respond(ResponseCode.SUCCESS, fields=self._names(request))

    def register(self, request: Frame) -> Frame:
        number = int(request.ext_fields["brokerId"])
        if number not in self.addresses:
            return request.respond(
                ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
                f"BrokerId: {number} hasn't been registered",
                fields=self._names(request),
            )
        fields = self._names(request)
        if self.master is not None and self.master not in self.dead:
            # The answer is made before the address changes.
            fields |= self._master()
        self.addresses[number] = request.ext_fields["brokerAddress"]
        return request.respond(ResponseCode.SUCCESS, fields=fields, body=self._set())

    def _set(self) -> bytes:
        return SyncStateSetBody(self.members, self.set_epoch).encode()

    def elect(self, request: Frame) -> Frame:
        number = int(request.ext_fields["brokerId"])
        if self.epoch == 0:
            chosen: int | None = number
        else:
            living = [each for each in sorted(self.members) if each not in self.dead]
            chosen = self.master if self.master in living else next(iter(living), None)
        if chosen is None:
            return request.respond(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, "nobody", fields={})
        code = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        if chosen != self.master:
            code = ResponseCode.SUCCESS
            self.elect_as(chosen)
        return request.respond(
            code, "elected", fields=self._master(), body=elected_body(self.members)
        )

    def alter(self, request: Frame) -> Frame:
        proposed = SyncStateSetBody.decode(request.body)
        self.proposed.append((proposed.members, proposed.members != self.members))
        fault = self._fault(request, proposed)
        if fault is not None:
            return request.respond(fault, "refused", fields={"newSyncStateSetEpoch": "0"})
        self.members, self.set_epoch = proposed.members, self.set_epoch + 1
        fields = {"newSyncStateSetEpoch": str(self.set_epoch)}
        return request.respond(ResponseCode.SUCCESS, fields=fields, body=self._set())

    def _fault(self, request: Frame, proposed: SyncStateSetBody) -> ResponseCode | None:
        if proposed.members == self.members:
            return ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
        if request.ext_fields["masterBrokerId"] != str(self.master):
            return ResponseCode.CONTROLLER_INVALID_MASTER
        if request.ext_fields["masterEpoch"] != str(self.epoch):
            return ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
        if proposed.epoch != self.set_epoch:
            return ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
        if any(each not in self.addresses for each in proposed.members):
            return ResponseCode.CONTROLLER_INVALID_REPLICAS
        if any(each in self.dead for each in proposed.members):
            return ResponseCode.CONTROLLER_BROKER_NOT_ALIVE
        if self.master not in proposed.members:
            return ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
        return None

    def replica_info(self, request: Frame) -> Frame:
        if not self.addresses:
            return request.respond(
                ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, "unknown", fields={}
            )
        fields = self._master()
        del fields["syncStateSetEpoch"]
        return request.respond(ResponseCode.SUCCESS, fields=fields, body=self._set())
