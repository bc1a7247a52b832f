"""Messages that consumers failed on: CONSUMER_SEND_MSG_BACK (36)."""

from __future__ import annotations

from rmqstore.broker.context import Context
from rmqstore.broker.operations.send_back import SendBack, SendBackOperation
from rmqstore.errors import PutError, RequestRefused
from rmqstore.remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from rmqstore.remoting.requests import Call, Handler

__all__ = ["SendBackRequests"]

_REMARK_SIZE_MAX = 500


class SendBackRequests:
    """The handler of messages that are sent back."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._operation = SendBackOperation(context)

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back}

    async def _send_back(self, call: Call[ConsumerSendMsgBackRequestHeader, bytes]) -> Frame | None:
        header = call.header
        back = SendBack(
            group=header.group,
            physical_offset=header.offset,
            level=header.delay_level,
            retries_max=header.max_reconsume_times,
        )
        try:
            await self._operation.send_back(back)
        except RequestRefused as error:
            return self._failure(call.request, error.code, str(error))
        except PutError as error:
            code = ResponseCode.SYSTEM_ERROR
            return self._failure(call.request, code, f"{error.status}: {error}")
        return call.respond(ResponseCode.SUCCESS)

    def _failure(self, request: Frame, code: int, remark: str) -> Frame | None:
        """Returns the answer to a message that is not stored, or may be lost. A Go client gets
        none: it takes any answer for a success, and its group would never get the message again.
        After a timeout it keeps the message and consumes it again."""
        if request.language is LanguageCode.GO:
            self._context.log.warning(
                "a message that a Go client sent back gets no answer: %s", remark
            )
            return None
        return request.respond(code, remark[:_REMARK_SIZE_MAX])
